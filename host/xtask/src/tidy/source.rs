//! Rules for one Rust file. Code is looked at as tokens: a rule's word in a comment or a string
//! breaks nothing.

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};
use std::str::FromStr;

const LINES_MAX: usize = 400;
const COLUMNS_MAX: usize = 100;
/// Macros that stand for code that is not there.
const BANNED_MACROS: [&str; 2] = ["todo", "unimplemented"];
/// Holds no `unsafe` at all.
const SAFE_FOLDER: &str = "no_std_core/";
/// Crate root that must forbid it, so that the compiler sees what expands from macros too.
const SAFE_ROOT: &str = "no_std_core/src/lib.rs";

/// Violations in the file at `path` (relative to the root, with `/`).
pub fn check(path: &str, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut report = |line: usize, what: &str| found.push(format!("{path}:{line}: {what}"));
    let lines = text.lines().count();
    if lines > LINES_MAX {
        report(lines, &format!("{lines} lines, at most {LINES_MAX} are allowed"));
    }
    for (i, line) in text.lines().enumerate() {
        let columns = line.chars().count();
        if columns > COLUMNS_MAX {
            report(i + 1, &format!("{columns} columns, at most {COLUMNS_MAX} are allowed"));
        }
        if line.trim_start().starts_with("//") && line.contains(concat!("```", "ignore")) {
            report(i + 1, "an ignored doc test; use `no_run`, or `text` for what is no Rust");
        }
    }
    if path == SAFE_ROOT && !text.contains("#![forbid(unsafe_code)]") {
        report(1, "the core must forbid unsafe_code");
    }
    match TokenStream::from_str(text) {
        Ok(tokens) => tokens_check(tokens, path.starts_with(SAFE_FOLDER), &mut report),
        Err(error) => report(error.span().start().line, "not Rust that can be read"),
    }
    found
}

fn tokens_check(tokens: TokenStream, safe: bool, report: &mut impl FnMut(usize, &str)) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    for (i, token) in tokens.iter().enumerate() {
        let line = token.span().start().line;
        match token {
            TokenTree::Ident(word) => {
                let word = word.to_string();
                if BANNED_MACROS.contains(&word.as_str()) && is_punct(tokens.get(i + 1), '!') {
                    report(line, &format!("`{word}!` is not allowed"));
                }
                if safe && word == "unsafe" {
                    report(line, "`unsafe` is not allowed in the core");
                }
            }
            TokenTree::Group(group) => {
                if is_punct(i.checked_sub(1).and_then(|p| tokens.get(p)), '#') && ignores(group) {
                    report(line, "`#[ignore]` is not allowed: a test runs or is not there");
                }
                tokens_check(group.stream(), safe, report);
            }
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
}

fn is_punct(token: Option<&TokenTree>, wanted: char) -> bool {
    matches!(token, Some(TokenTree::Punct(p)) if p.as_char() == wanted)
}

/// Is this the bracket of `#[ignore]`, `#[ignore = "…"]` or `#[cfg_attr(…, ignore)]`?
fn ignores(group: &Group) -> bool {
    let mut tokens = group.stream().into_iter();
    let (Delimiter::Bracket, Some(TokenTree::Ident(first))) = (group.delimiter(), tokens.next())
    else {
        return false;
    };
    match tokens.next() {
        Some(TokenTree::Group(inner)) if first == "cfg_attr" => inner
            .stream()
            .into_iter()
            .any(|token| matches!(token, TokenTree::Ident(word) if word == "ignore")),
        _ => first == "ignore",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines_of(path: &str, text: &str) -> Vec<usize> {
        let line = |v: &String| v.split(':').nth(1).and_then(|n| n.parse().ok());
        check(path, text).iter().filter_map(line).collect()
    }

    #[test]
    fn clean_file_passes() {
        let text =
            "//! todo!() and unsafe may be spoken of.\nfn f() -> &'static str { \"todo!()\" }\n";
        assert_eq!(check("no_std_core/src/a.rs", text), Vec::<String>::new());
    }

    #[test]
    fn lengths_are_counted() {
        assert!(lines_of("a.rs", &"\n".repeat(LINES_MAX)).is_empty());
        assert_eq!(lines_of("a.rs", &"\n".repeat(LINES_MAX + 1)), [LINES_MAX + 1]);
        let line = |n| format!("// {}\n", "é".repeat(n));
        assert!(lines_of("a.rs", &line(COLUMNS_MAX - 3)).is_empty());
        assert_eq!(lines_of("a.rs", &line(COLUMNS_MAX - 2)), [1]);
    }

    #[test]
    fn banned_macros_are_found_in_any_depth() {
        assert_eq!(
            lines_of("a.rs", "fn f() {\n  if x { todo!() }\n  unimplemented !();\n}"),
            [2, 3]
        );
        assert!(lines_of("a.rs", "fn todo() {}").is_empty());
    }

    #[test]
    fn ignored_tests_are_found() {
        assert_eq!(lines_of("a.rs", "#[test]\n#[ignore]\nfn f() {}"), [2]);
        assert_eq!(lines_of("a.rs", "#[ignore = \"slow\"]\nfn f() {}"), [1]);
        assert_eq!(lines_of("a.rs", "#[cfg_attr(miri, ignore)]\nfn f() {}"), [1]);
        assert_eq!(lines_of("a.rs", concat!("//! ```", "ignore\n//! ```\n")), [1]);
        assert!(lines_of("a.rs", "fn f() { ignore(x[0]) }").is_empty());
    }

    #[test]
    fn core_is_safe() {
        assert_eq!(lines_of("no_std_core/src/a.rs", "fn f() {\n unsafe { g() }\n}"), [2]);
        assert!(lines_of("drivers/x/src/a.rs", "fn f() { unsafe { g() } }").is_empty());
        assert_eq!(lines_of(SAFE_ROOT, "#![no_std]"), [1]);
        assert!(lines_of(SAFE_ROOT, "#![forbid(unsafe_code)]").is_empty());
    }

    #[test]
    fn broken_code_is_reported() {
        assert_eq!(lines_of("a.rs", "fn f() {\n"), [1]);
    }
}
