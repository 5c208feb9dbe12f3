//! The code of an image, and the counts of the plugin for it.

use object::{Object, ObjectSection, ObjectSymbol, SectionKind, SymbolKind};
use rustc_demangle::demangle;
use std::collections::BTreeMap;
use std::path::Path;
use tempfile::TempDir;

/// As in `host/qemu_counter`: counts are by this many bytes of code, of so many cores.
const STEP: u64 = 2;
const CORES: usize = 2;

/// An image's code.
pub struct Code {
    begin: u64,
    end: u64,
    /// Where a round ends, with work and without.
    worked: u64,
    rested: u64,
    /// Functions by their first address.
    functions: BTreeMap<u64, String>,
    /// Holds the counts.
    folder: TempDir,
}

impl Code {
    /// Reads an image.
    pub fn read(path: &Path) -> Result<Self, super::Failure> {
        let bytes = std::fs::read(path)?;
        let file = object::File::parse(&*bytes)?;
        let mut functions = BTreeMap::new();
        for symbol in file.symbols().filter(|s| s.kind() == SymbolKind::Text && s.size() > 0) {
            // On Arm the lowest bit tells the instruction set.
            functions.insert(symbol.address() & !1, format!("{:#}", demangle(symbol.name()?)));
        }
        let place = |name: &str| {
            let found = functions.iter().find(|(_, n)| *n == name).map(|(at, _)| *at);
            found.ok_or_else(|| format!("{} has no {name}", path.display()))
        };
        let (worked, rested) = (place("unisono_worked")?, place("unisono_rested")?);
        let text = || file.sections().filter(|s| s.kind() == SectionKind::Text);
        let begin = text().map(|s| s.address()).min().ok_or("no code")?;
        let end = text().map(|s| s.address() + s.size()).max().ok_or("no code")?;
        Ok(Self { begin, end, worked, rested, functions, folder: tempfile::tempdir()? })
    }

    /// Arguments for QEMU that count this code.
    pub fn plugin(&self, plugin: &Path) -> Vec<String> {
        let Self { begin, end, worked, rested, .. } = self;
        let (plugin, out) = (plugin.display(), self.out());
        let places = format!("begin={begin},end={end},worked={worked},rested={rested}");
        vec!["-plugin".to_owned(), format!("{plugin},out={},{places}", out.display())]
    }

    fn out(&self) -> std::path::PathBuf {
        self.folder.path().join("counts")
    }

    /// Instructions so far, all or those of rounds with work, by bucket.
    pub fn counts(&self, worked: bool) -> Result<Vec<u64>, super::Failure> {
        let bytes = std::fs::read(self.out())?;
        let numbers: Vec<u64> =
            bytes.as_chunks().0.iter().map(|n| u64::from_le_bytes(*n)).collect();
        let buckets = (self.end - self.begin).div_ceil(STEP) as usize + 1;
        if numbers.len() != CORES * 2 * buckets {
            return Err("the counts are not for this image".into());
        }
        let mut sums = vec![0; buckets];
        for plane in numbers.chunks_exact(buckets).skip(worked.into()).step_by(2) {
            sums.iter_mut().zip(plane).for_each(|(sum, count)| *sum += count);
        }
        Ok(sums)
    }

    /// The same by function, the largest first.
    pub fn by_function(&self, counts: &[u64]) -> Vec<(u64, &str)> {
        let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
        for (bucket, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            let address = self.begin + bucket as u64 * STEP;
            let function = self.functions.range(..=address).next_back();
            let inside = bucket + 1 < counts.len();
            let name = function.filter(|_| inside).map_or("(elsewhere)", |(_, name)| name);
            *sums.entry(name).or_default() += count;
        }
        let mut sorted: Vec<(u64, &str)> = sums.into_iter().map(|(name, n)| (n, name)).collect();
        sorted.sort_by(|a, b| b.cmp(a));
        sorted
    }
}
