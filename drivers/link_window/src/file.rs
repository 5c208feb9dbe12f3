//! Windows that are files.

use crate::window::Window;
use core::ptr::NonNull;
use memmap2::{MmapOptions, MmapRaw};
use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;
use std::sync::Arc;

impl Window {
    /// Maps a whole file: shared memory that already exists, or the resource file of a PCI device
    /// (`/sys/bus/pci/devices/…/resource2`), whose length is that of the BAR.
    ///
    /// # Errors
    /// If it cannot be opened for reading and writing, or cannot be mapped.
    pub fn open(path: &Path) -> io::Result<Self> {
        Self::map(&OpenOptions::new().read(true).write(true).open(path)?)
    }

    /// Makes a file of `bytes` zeros and maps it.
    ///
    /// # Errors
    /// If there is such a file already, or it cannot be made or mapped.
    pub fn create(path: &Path, bytes: u64) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
        file.set_len(bytes)?;
        Self::map(&file)
    }

    /// Memory of this process and its children alone.
    ///
    /// # Errors
    /// If there is not enough of it.
    pub fn anonymous(bytes: usize) -> io::Result<Self> {
        // A file without a name would do; this needs none.
        Self::keep(MmapOptions::new().len(bytes).map_anon()?.into())
    }

    fn map(file: &File) -> io::Result<Self> {
        Self::keep(MmapOptions::new().map_raw(file)?)
    }

    fn keep(map: MmapRaw) -> io::Result<Self> {
        let bytes = map.len();
        let base = NonNull::new(map.as_mut_ptr()).ok_or(io::ErrorKind::InvalidInput)?;
        // SAFETY: the map lives as long as the window's clones, which share it. Other processes
        // may write to it: that is what a window is for.
        let mut window = unsafe { Self::new(base, bytes) };
        window.map = Some(Arc::new(map));
        Ok(window)
    }
}
