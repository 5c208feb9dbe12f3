//! Slurm's short forms: `node[1-3,07],gpu5` for hosts, `2(x3),1` for tasks per node.

/// The first host of a list; its numbers keep their leading zeros.
pub(super) fn first(list: &str) -> Option<String> {
    // The first name ends at the first comma outside of brackets.
    let mut depth = 0usize;
    let end = list.char_indices().find_map(|(at, c)| {
        match c {
            '[' => depth += 1,
            ']' => depth = depth.checked_sub(1)?,
            ',' if depth == 0 => return Some(at),
            _ => {}
        }
        None
    });
    let mut host = String::new();
    let mut rest = &list[..end.unwrap_or(list.len())];
    while let Some((before, after)) = rest.split_once('[') {
        let (inside, after) = after.split_once(']')?;
        let number = inside.split([',', '-']).next()?;
        if number.is_empty() || !number.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        host.push_str(before);
        host.push_str(number);
        rest = after;
    }
    host.push_str(rest);
    (!host.is_empty() && !host.contains([']', '[', ',', ' '])).then_some(host)
}

/// How many tasks the node with this number has.
pub(super) fn tasks(list: &str, node: usize) -> Option<usize> {
    let mut left = node;
    for entry in list.split(',') {
        let (tasks, nodes) = match entry.split_once("(x") {
            Some((tasks, nodes)) => (tasks, nodes.strip_suffix(')')?.parse().ok()?),
            None => (entry, 1),
        };
        if left < nodes {
            return tasks.parse().ok();
        }
        left -= nodes;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_host_of_a_list() {
        for (list, host) in [
            ("vm", "vm"),
            ("a,b", "a"),
            ("node[1-3]", "node1"),
            ("node[007-100,3],x", "node007"),
            ("r[2,4]n[09-10]-ib,q", "r2n09-ib"),
        ] {
            assert_eq!(first(list).as_deref(), Some(host), "{list}");
        }
        for bad in ["", ",a", "node[", "node[]", "node[a-b]", "node]1[", "a b"] {
            assert_eq!(first(bad), None, "{bad}");
        }
    }

    #[test]
    fn tasks_of_a_node() {
        let of = |list, nodes: usize| (0..nodes).map(|n| tasks(list, n)).collect::<Vec<_>>();
        assert_eq!(of("4", 2), [Some(4), None]);
        assert_eq!(of("2(x3),1", 5), [Some(2), Some(2), Some(2), Some(1), None]);
        assert_eq!(of("2(x", 1), [None]);
    }
}
