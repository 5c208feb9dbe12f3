//! The output file: complete or not there.

use super::super::error::Usage;
use super::super::interrupt::Interrupt;
use super::super::staged::Staged;
use super::buckets::Buckets;
use super::input::Input;
use super::run::BLOCK;
use anyhow::Result;
use std::fs;
use std::path::Path;

/// A temporary file in the folder of the output; gone again unless it is written to the end.
pub struct Output(Staged);

impl Output {
    /// Makes sure, before any work is done, that the output can be written.
    ///
    /// An output that is one of the inputs is safe for the tool (inputs are read long before the
    /// output takes its name), but the user loses data: that needs `force`.
    pub fn create(path: &Path, inputs: &[Input], force: bool) -> Result<Self> {
        let staged = Staged::create(path)?;
        let same = |i: &&Input| fs::canonicalize(&i.path).is_ok_and(|other| other == staged.path());
        if let Some(input) = inputs.iter().find(same).filter(|_| !force) {
            let input = input.path.display();
            return Err(Usage(format!("{input} is input and output; --force allows it")).into());
        }
        Ok(Self(staged))
    }

    /// Writes header and tensors, and gives the file its name.
    pub fn write(
        self,
        like: &Input,
        buckets: &Buckets,
        result: &[u8],
        interrupt: &Interrupt,
    ) -> Result<()> {
        let Self(mut file) = self;
        let mut tensors: Vec<_> = like.tensors.iter().collect();
        // As in rank 0's file, so that its header fits.
        tensors.sort_by_key(|(_, tensor)| tensor.start);
        file.write(&like.header)?;
        for (name, _) in tensors {
            let Some(place) = buckets.places.get(name) else { continue };
            for block in result[place.clone()].chunks(BLOCK) {
                interrupt.check()?;
                file.write(block)?;
            }
        }
        file.sync()?;
        interrupt.check()?;
        file.keep()
    }
}
