//! A name for a job whose launcher gives it none: the process that started all ranks of this host.

use std::fs;

/// `PID-START` of the nearest ancestor that has not got `variable` in its own environment: scripts
/// and shells between the launcher and this process have inherited it. The start time keeps a name
/// from being used twice when process ids are.
pub(super) fn id(variable: &str) -> Option<String> {
    let mut pid = std::process::id();
    loop {
        let (parent, _) = stat(pid)?;
        if parent == 0 || !has(parent, variable) {
            let (_, started) = stat(parent)?;
            return Some(format!("{parent}-{started}"));
        }
        pid = parent;
    }
}

/// Parent and start time of a process.
fn stat(pid: u32) -> Option<(u32, u64)> {
    parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

fn parse(stat: &str) -> Option<(u32, u64)> {
    // The program's name may hold blanks and parentheses; what follows the last one are numbers.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace();
    let parent = fields.nth(1)?.parse().ok()?;
    Some((parent, fields.nth(17)?.parse().ok()?))
}

/// Did a process start with this variable? What may not be read belongs to somebody else.
fn has(pid: u32, variable: &str) -> bool {
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let named = |pair: &[u8]| {
        pair.strip_prefix(variable.as_bytes()).is_some_and(|rest| rest.starts_with(b"="))
    };
    environment.split(|&b| b == 0).any(named)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_behind_any_name() {
        let stat = "12 (a) b (c) S 34 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 0 4711 1 2";
        assert_eq!(parse(stat), Some((34, 4711)));
        assert_eq!(parse("12 (a) S x"), None);
    }

    #[test]
    fn the_parent_has_no_such_variable() {
        let (parent, _) = stat(std::process::id()).unwrap();
        let name = id("UNISONO_NO_SUCH_VARIABLE").unwrap();
        assert!(name.starts_with(&format!("{parent}-")), "{name}");
    }
}
