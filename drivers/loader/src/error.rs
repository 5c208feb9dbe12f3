//! Why an image was not loaded.

use crate::package::PackageError;

/// Why an image was not loaded. But for [`LoadError::Step`], nothing was done.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// `--to` names nothing that is known.
    #[error("{0}")]
    Way(String),
    /// The image is not one for this board.
    #[error("the image: {0}")]
    Package(PackageError),
    /// This loader cannot do anything with such an image.
    #[error("{to} cannot take this image: {why}")]
    Unfit {
        /// The loader.
        to: String,
        /// Why not, and what it takes.
        why: String,
    },
    /// The device is in a state that forbids it.
    #[error("{to}: {why}")]
    State {
        /// The loader.
        to: String,
        /// Which state, and what to do.
        why: String,
    },
    /// The device or a program is not here.
    #[error("{to}: {what}; nothing was done ({help})")]
    Missing {
        /// The loader.
        to: String,
        /// What was looked for.
        what: String,
        /// What to do.
        help: String,
    },
    /// A step has failed; those before it are done.
    #[error(transparent)]
    Step(#[from] Box<Failure>),
}

impl From<PackageError> for LoadError {
    fn from(error: PackageError) -> Self {
        Self::Package(error)
    }
}

/// A step that has failed.
#[derive(Debug, thiserror::Error)]
#[error("{to}: step {number} of {of} failed ({step}): {cause}; {done}; now {left}")]
pub struct Failure {
    /// The loader.
    pub to: String,
    /// Which step, from 1.
    pub number: usize,
    /// How many there are.
    pub of: usize,
    /// What it was to do.
    pub step: String,
    /// What went wrong.
    pub cause: String,
    /// What was done before.
    pub done: String,
    /// What the device is left in.
    pub left: String,
}
