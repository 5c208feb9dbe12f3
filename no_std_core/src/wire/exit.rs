//! Exit codes of firmware, where somebody takes them: an emulator, or a system below it.

/// There is no window, or it cannot be mapped.
pub const NO_WINDOW: i32 = 2;
/// The region in the window is not one of the firmware's version.
pub const WINDOW_ABI: i32 = 3;
/// The second core does not start.
pub const NO_SECOND_CORE: i32 = 4;
/// There is no network card that works.
pub const NO_NETWORK: i32 = 5;
/// The firmware has panicked; the code of any Rust program that does.
pub const PANICKED: i32 = 101;

/// What a code means; `None` for one that no firmware here ends with.
#[must_use]
pub const fn meaning(code: i32) -> Option<&'static str> {
    Some(match code {
        NO_WINDOW => "the firmware has found no window to its host",
        WINDOW_ABI => "the window is laid out by another version than the firmware's",
        NO_SECOND_CORE => "the board's second core does not start",
        NO_NETWORK => "the firmware has found no network card that works",
        PANICKED => "the firmware has panicked",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_means_something_else() {
        let codes = [NO_WINDOW, WINDOW_ABI, NO_SECOND_CORE, NO_NETWORK, PANICKED];
        let all = codes.map(|code| meaning(code).unwrap_or_default());
        for (i, text) in all.iter().enumerate() {
            assert!(!text.is_empty() && !all[..i].contains(text), "{text}");
        }
        // What QEMU ends with when it cannot start a machine is not the firmware's.
        assert_eq!([0, 1].map(meaning), [None, None]);
    }
}
