//! Reads an ELF image: sizes of what is loaded, and which panic machinery is in it.

use anyhow::{Result, bail};
use object::{Object, ObjectSection, ObjectSymbol, SectionFlags, SectionKind, SymbolKind, elf};
use rustc_demangle::demangle;

/// Sizes in bytes of one linked image.
#[derive(Debug, Default)]
pub struct Image {
    /// Machine code.
    pub code: u64,
    /// Constants.
    pub rodata: u64,
    /// Variables with a first value: in flash and in RAM.
    pub data: u64,
    /// Zeroed variables.
    pub bss: u64,
    /// Unwind tables; firmware's linker scripts drop them, so they are in no sum.
    pub unwind: u64,
    /// Symbols of `core::panicking` and what leads there.
    pub panics: Vec<String>,
    /// Places in the source, `file:line:column`, whose checks may panic.
    pub sites: Vec<String>,
    /// Symbols of an allocator.
    pub allocators: Vec<String>,
    /// Functions, the largest first.
    pub functions: Vec<(u64, String)>,
    /// Constants and variables with a symbol, the largest first.
    pub objects: Vec<(u64, String)>,
}

impl Image {
    /// What the image takes of flash.
    pub const fn flash(&self) -> u64 {
        self.code + self.rodata + self.data
    }

    /// What the image takes of RAM before its stack.
    pub const fn ram(&self) -> u64 {
        self.data + self.bss
    }
}

/// Takes an image apart.
///
/// # Errors
/// If it is no ELF file, has no code, or is stripped of its symbols.
pub fn read(bytes: &[u8]) -> Result<Image> {
    let file = object::File::parse(bytes)?;
    let mut image = Image::default();
    for section in file.sections() {
        let SectionFlags::Elf { sh_flags, .. } = section.flags() else { bail!("not an ELF file") };
        let has = |flag: elf::SectionFlags| sh_flags.0 & flag.0 != 0;
        if !has(elf::SHF_ALLOC) {
            continue;
        }
        let name = section.name()?;
        let unwind = [".eh_frame", ".ARM.ex"].iter().any(|u| name.starts_with(u));
        let sum = match section.kind() {
            _ if unwind => &mut image.unwind,
            _ if has(elf::SHF_EXECINSTR) => &mut image.code,
            SectionKind::UninitializedData | SectionKind::UninitializedTls => &mut image.bss,
            _ if has(elf::SHF_WRITE) => &mut image.data,
            _ => &mut image.rodata,
        };
        *sum += section.size();
    }
    for symbol in file.symbols() {
        let name = format!("{:#}", demangle(symbol.name()?));
        if is_allocator(&name) {
            image.allocators.push(name.clone());
        }
        if symbol.size() == 0 {
            continue;
        }
        if symbol.kind() == SymbolKind::Data {
            image.objects.push((symbol.size(), name));
            continue;
        }
        if symbol.kind() != SymbolKind::Text {
            continue;
        }
        if is_panic(&name) {
            image.panics.push(name.clone());
        }
        image.functions.push((symbol.size(), name));
    }
    image.sites = sites(&file)?;
    if image.code == 0 || image.functions.is_empty() {
        bail!("no code or no symbols in the image: its sizes would tell nothing");
    }
    image.functions.sort_by(|a, b| b.cmp(a));
    image.objects.sort_by(|a, b| b.cmp(a));
    image.panics.sort();
    Ok(image)
}

/// Finds what a panic carries (`core::panic::Location`): a pointer to a file's name, its length, a
/// line and a column.
fn sites(file: &object::File<'_>) -> Result<Vec<String>> {
    let word = if file.is_64() { 8 } else { 4 };
    let mut constants = Vec::new();
    for section in file.sections() {
        let is_text = section.kind() == SectionKind::Text;
        if section.address() > 0 && !is_text {
            constants.push((section.address(), section.data()?));
        }
    }
    let string = |at: u64, len: u64| {
        constants.iter().find_map(|(start, data)| {
            let from = usize::try_from(at.checked_sub(*start)?).ok()?;
            let bytes = data.get(from..from.checked_add(usize::try_from(len).ok()?)?)?;
            std::str::from_utf8(bytes).ok().filter(|name| name.ends_with(".rs"))
        })
    };
    let number = |data: &[u8], at: usize, size: usize| {
        let bytes = data.get(at..at + size)?;
        Some(bytes.iter().rev().fold(0u64, |n, b| n << 8 | u64::from(*b)))
    };
    let mut found = Vec::new();
    for (start, data) in &constants {
        let first = (word - *start as usize % word) % word;
        for at in (first..data.len()).step_by(word) {
            let site = (|| {
                let name = string(number(data, at, word)?, number(data, at + word, word)?)?;
                let line = number(data, at + 2 * word, 4)?;
                let column = number(data, at + 2 * word + 4, 4)?;
                Some(format!("{name}:{line}:{column}"))
            })();
            found.extend(site);
        }
    }
    found.sort();
    found.dedup();
    Ok(found)
}

/// Is this a function that a failing check of the language or of `core` ends in?
fn is_panic(name: &str) -> bool {
    ["core::panicking::", "unwrap_failed", "expect_failed", "rust_begin_unwind", "panic_handler"]
        .iter()
        .any(|p| name.contains(p))
        || name.starts_with("core::slice::index::") && name.contains("fail")
}

/// Is this a function that hands out memory, or of the library that asks for it?
fn is_allocator(name: &str) -> bool {
    const C: [&str; 6] = ["malloc", "calloc", "realloc", "free", "aligned_alloc", "posix_memalign"];
    let bare = name.rsplit("::").next().unwrap_or(name);
    C.contains(&name)
        || ["__rust_", "__rg_", "__rdl_"]
            .iter()
            .any(|p| bare.starts_with(p) && bare.contains("alloc"))
        || name.starts_with("alloc::")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_this_very_test() {
        let path = std::env::current_exe().unwrap();
        let image = read(&std::fs::read(path).unwrap()).unwrap();
        assert!(image.code > 10_000 && image.rodata > 1_000 && image.ram() > 0);
        assert!(image.flash() >= image.code + image.rodata);
        assert!(image.panics.iter().any(|p| p.starts_with("core::panicking::")), "std panics");
        assert!(image.allocators.iter().any(|a| a.contains("__rust_alloc")), "std allocates");
        let largest = image.functions[0].0;
        assert!(image.functions.iter().all(|f| f.0 <= largest));
    }

    #[test]
    fn panic_names() {
        assert!(is_panic("core::panicking::panic_fmt"));
        assert!(is_panic("core::option::unwrap_failed"));
        assert!(is_panic("core::slice::index::slice_index_fail"));
        assert!(!is_panic("size_probe::fold"));
    }

    #[test]
    fn allocator_names() {
        for name in ["__rust_alloc", "__rustc::__rust_dealloc", "__rg_realloc", "malloc", "free"] {
            assert!(is_allocator(name), "{name}");
        }
        assert!(is_allocator("alloc::raw_vec::RawVec<T>::grow_one"));
        for name in ["free_slots", "unisono_core::machine::alloc", "__rust_no_panic"] {
            assert!(!is_allocator(name), "{name}");
        }
    }

    #[test]
    fn rubbish_is_refused() {
        assert!(read(b"not an image").is_err());
    }
}
