//! Memory for tensors: whole pages, touched first by whoever writes them first.

use memmap2::{Advice, MmapMut};
use std::io;

/// Page-aligned memory that takes no real pages until it is written.
pub struct Pages(MmapMut);

impl Pages {
    /// At least `bytes` bytes of zeros. `huge`: ask for huge pages (an error where there are none).
    pub fn new(bytes: usize, huge: bool) -> io::Result<Self> {
        // A mapping of no bytes does not exist.
        let map = MmapMut::map_anon(bytes.max(1))?;
        if huge {
            advise_huge(&map)?;
        }
        Ok(Self(map))
    }
}

impl std::ops::Deref for Pages {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl std::ops::DerefMut for Pages {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

#[cfg(target_os = "linux")]
fn advise_huge(map: &MmapMut) -> io::Result<()> {
    map.advise(Advice::HugePage)
}

#[cfg(not(target_os = "linux"))]
fn advise_huge(_: &MmapMut) -> io::Result<()> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "huge pages on request need Linux"))
}
