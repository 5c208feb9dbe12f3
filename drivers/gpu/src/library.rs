//! Drivers' libraries.

use std::path::Path;

/// Loads a driver's library, and lets it go again; for processes that may die of it.
///
/// # Errors
/// In the system's words, if it does not load. `Ok` for libraries of another word size: systems
/// that can run programs of two have drivers for both.
///
/// # Safety
/// Its initialisers run.
pub unsafe fn try_library(path: &Path) -> Result<(), String> {
    // SAFETY: the caller's promise.
    match unsafe { libloading::Library::new(path) } {
        Ok(_) => Ok(()),
        Err(error) => {
            let cause = std::error::Error::source(&error).map(ToString::to_string);
            let text = cause.unwrap_or_else(|| error.to_string());
            if text.contains("wrong ELF class") { Ok(()) } else { Err(text) }
        }
    }
}
