//! Topology files: what is written is read again, and what makes no sense is one clear line.

use unisono_planner::{Link, LinkKind, Member, Topology};

fn member(host: &str) -> Member {
    let device = "cpu \u{b5} \"x\"".to_owned();
    let (fold, send, receive) = (1e10, 2.5e9, 1.25e9);
    Member {
        host: host.into(),
        device,
        numa: Some(1),
        data: true,
        fold,
        send,
        receive,
        both: Some(2e9),
    }
}

fn topology() -> Topology {
    let ways = [(0, 1), (1, 0), (0, 2), (2, 0), (1, 2), (2, 1)];
    let link = |(from, to)| Link {
        from,
        to,
        kind: LinkKind::Tcp,
        alpha: 1.5e-5,
        rate: 1e9 / 3.0,
        message: Some(1e-6),
    };
    let members = vec![member("a"), member("a"), Member { data: false, numa: None, ..member("b") }];
    Topology::new(members, ways.map(link).to_vec()).expect("it makes sense")
}

#[test]
fn what_is_written_is_read_again() {
    let topology = topology();
    let text = topology.text();
    let again = Topology::parse(&text).expect("it was written here");
    assert_eq!(again, topology);
    assert_eq!((again.ranks(), again.aggregators(), again.hosts()), (2, 1, vec!["a", "b"]));
    assert_eq!(again.fingerprint(), topology.fingerprint());
    // Order of the links in the file means nothing.
    let mut links = topology.links.clone();
    links.reverse();
    let turned = Topology::new(topology.members.clone(), links).expect("the same links");
    assert_eq!(turned.text(), text);
    // The last bit of a number does.
    let other = text.replace("333333333.3333333", "333333333.3333332");
    let other = Topology::parse(&other).expect("a number");
    assert_ne!(other.fingerprint(), topology.fingerprint());
}

#[test]
fn nonsense_is_one_line_that_says_where() {
    let text = topology().text();
    let first = r#"{"from":0,"to":1,"#;
    let cases = [
        ("", "", "no topology: EOF while parsing a value at line 1 column 0"),
        ("\"version\": 1", "\"version\": 2", "topology of version 2; this program reads version 1"),
        ("\"topology\"", "\"plan\"", "it must say \"unisono\": \"topology\""),
        ("2500000000.0", "0.0", "member 0: send must be 1 to 1e18 bytes per second"),
        ("2500000000.0", "-1", "member 0: send must be"),
        ("2500000000.0", "1e999", "number out of range at line 5"),
        ("2500000000.0", "null", "invalid type: null, expected f64 at line 5"),
        ("\"data\":true", "\"data\":false", "members with data come first"),
        ("\"numa\":1", "\"numa\":70000", "invalid value: integer `70000`, expected u16"),
        ("\"host\":\"a\"", "\"host\":\"\\u0007\"", "member 0: a name with control characters"),
        ("\"host\":\"a\"", "\"hosts\":\"a\"", "unknown field `hosts`"),
        (first, r#"{"from":0,"to":3,"#, "a link from 0 to 3, with 3 members"),
        (first, r#"{"from":0,"to":0,"#, "a link from 0 to 0, with 3 members"),
        (first, r#"{"from":0,"to":2,"#, "two links from 0 to 2"),
        (first, r#"{"from":0,"to":66000,"#, "expected u16"),
        ("\"alpha\":0.000015", "\"alpha\":-1", "link 0 to 1: alpha must be 0 to 3600 s"),
        ("\"tcp\"", "\"pigeon\"", "unknown variant `pigeon`"),
    ];
    for (from, to, words) in cases {
        let bad = if from.is_empty() { String::new() } else { text.replacen(from, to, 1) };
        assert_ne!(bad, text, "{from} is not in the file");
        let error = Topology::parse(&bad).expect_err(to).to_string();
        assert!(error.contains(words) && !error.contains('\n'), "{from} -> {to}: {error}");
    }
    let line = text.lines().find(|line| line.contains(first)).expect("a link");
    let error = Topology::parse(&text.replace(line, "")).expect_err("one link less");
    assert_eq!(error.to_string(), "no link from 0 to 1");
    let error = Topology::parse(&" ".repeat(9 << 20)).expect_err("too long");
    assert!(error.to_string().starts_with("a topology of 9437184 bytes"), "{error}");
    assert!(Topology::new(vec![member("a"); 129], Vec::new()).is_err());
    assert!(Topology::new(Vec::new(), Vec::new()).is_err());
}
