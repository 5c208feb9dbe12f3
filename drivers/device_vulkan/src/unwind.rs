//! What drivers say may be such nonsense that vulkano panics.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    /// This thread's panics are caught, and need not be printed.
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// What `work` returns; `None` if it panics, which is printed nowhere.
pub(crate) fn caught<T>(work: impl FnOnce() -> T) -> Option<T> {
    static HOOK: Once = Once::new();
    // Hooks cannot be changed by a thread that panics already.
    if !std::thread::panicking() {
        HOOK.call_once(|| {
            let before = take_hook();
            set_hook(Box::new(move |info| match QUIET.get() {
                true => tracing::debug!("{info}"),
                false => before(info),
            }));
        });
    }
    QUIET.set(true);
    let result = catch_unwind(AssertUnwindSafe(work));
    QUIET.set(false);
    result.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panics_end_here() {
        assert_eq!(caught(|| 1), Some(1));
        let nothing: Option<u8> = std::hint::black_box(None);
        assert_eq!(caught(|| nothing.unwrap()), None);
        assert!(!QUIET.get());
    }
}
