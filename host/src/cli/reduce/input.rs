//! Safetensors files as inputs: headers first, tensors when their place in memory is known.

use super::super::error::Usage;
use super::names::Twice;
use anyhow::{Context, Result, bail};
use safetensors::Dtype;
use safetensors::tensor::Metadata;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use unisono::{DType, ReduceOp};

/// The largest header that the format allows.
const HEADER_MAX: u64 = 100_000_000;

/// One tensor of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    /// Element type.
    pub dtype: DType,
    /// Shape; empty for a scalar.
    pub shape: Vec<usize>,
    /// Where its bytes start in the file.
    pub start: u64,
    /// How many they are.
    pub bytes: usize,
}

/// One rank's file, its header read and checked.
#[derive(Debug)]
pub struct Input {
    /// Its name.
    pub path: PathBuf,
    /// Everything before the tensors' bytes.
    pub header: Vec<u8>,
    /// The tensors by name.
    pub tensors: BTreeMap<String, Tensor>,
    file: Mutex<File>,
}

impl Input {
    /// Opens a file and reads its header.
    pub fn open(path: &Path) -> Result<Self> {
        let shown = || path.display().to_string();
        // Before it is opened: opening a pipe waits for somebody to write into it.
        if !fs::metadata(path).with_context(shown)?.is_file() {
            bail!("{}: not a regular file", shown());
        }
        let mut file = File::open(path).with_context(shown)?;
        let about = file.metadata().with_context(shown)?;
        let (header, about) = read_header(&mut file, about.len()).with_context(shown)?;
        let tensors = tensors(&about, header.len() as u64).with_context(shown)?;
        Ok(Self { path: path.to_owned(), header, tensors, file: Mutex::new(file) })
    }

    /// Reads the bytes at an offset of the file.
    pub fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.seek(SeekFrom::Start(offset))
            .and_then(|_| file.read_exact(into))
            .with_context(|| format!("reading {}", self.path.display()))
    }
}

/// The header's bytes, and what they say; `length` is that of the file.
fn read_header(file: &mut File, length: u64) -> Result<(Vec<u8>, Metadata)> {
    let no_file = "not a safetensors file";
    if length < 8 {
        bail!("{no_file}: {length} bytes are too few");
    }
    let mut size = [0; 8];
    file.read_exact(&mut size)?;
    let size = u64::from_le_bytes(size);
    if size > HEADER_MAX {
        bail!("{no_file}: it begins with no plausible size of a header");
    }
    if size > length - 8 {
        bail!("truncated: a header of {size} bytes, but only {} bytes are there", length - 8);
    }
    let mut header = vec![0; 8 + size as usize];
    file.seek(SeekFrom::Start(0))?;
    file.read_exact(&mut header)?;
    let nonsense = || format!("{no_file}: its header makes no sense");
    let Twice(twice) = serde_json::from_slice(&header[8..]).with_context(nonsense)?;
    if let Some(name) = twice {
        bail!("{no_file}: its header names {} twice", entry(&name));
    }
    let about: Metadata = serde_json::from_slice(&header[8..]).with_context(nonsense)?;
    let want = header.len() as u64 + about.data_len() as u64;
    match want.cmp(&length) {
        std::cmp::Ordering::Equal => Ok((header, about)),
        std::cmp::Ordering::Greater => {
            bail!("truncated: its header speaks of {want} bytes, {length} are there")
        }
        std::cmp::Ordering::Less => {
            bail!("{no_file}: {} bytes after the last tensor", length - want)
        }
    }
}

/// An entry of a header in words.
fn entry(name: &str) -> String {
    match name {
        "__metadata__" => "its metadata".into(),
        name => format!("tensor {name:?}"),
    }
}

fn tensors(about: &Metadata, data: u64) -> Result<BTreeMap<String, Tensor>> {
    let mut tensors = BTreeMap::new();
    for (name, info) in about.tensors() {
        let Some(dtype) = dtype_of(info.dtype) else {
            bail!(
                "tensor {name:?} is of type {:?}, which cannot be reduced (F64, F32, F16, BF16, \
                 F8_E4M3, F8_E5M2 and integers can)",
                info.dtype
            );
        };
        let (start, end) = info.data_offsets;
        let shape = info.shape.clone();
        let tensor = Tensor { dtype, shape, start: data + start as u64, bytes: end - start };
        tensors.insert(name, tensor);
    }
    Ok(tensors)
}

const fn dtype_of(dtype: Dtype) -> Option<DType> {
    Some(match dtype {
        Dtype::F64 => DType::F64,
        Dtype::F32 => DType::F32,
        Dtype::F16 => DType::F16,
        Dtype::BF16 => DType::BF16,
        Dtype::F8_E4M3 => DType::F8E4M3,
        Dtype::F8_E5M2 => DType::F8E5M2,
        Dtype::I8 => DType::I8,
        Dtype::I16 => DType::I16,
        Dtype::I32 => DType::I32,
        Dtype::I64 => DType::I64,
        Dtype::U8 => DType::U8,
        Dtype::U16 => DType::U16,
        Dtype::U32 => DType::U32,
        Dtype::U64 => DType::U64,
        _ => return None,
    })
}

/// Opens every rank's file; all must have the same tensors as rank 0's.
pub fn open_all(paths: &[PathBuf]) -> Result<Vec<Input>> {
    let inputs = paths.iter().map(|p| Input::open(p)).collect::<Result<Vec<_>>>()?;
    if let Some((first, others)) = inputs.split_first() {
        for (i, other) in others.iter().enumerate() {
            same_tensors(first, other, i + 1)?;
        }
    }
    Ok(inputs)
}

fn same_tensors(first: &Input, other: &Input, rank: usize) -> Result<()> {
    let here = || format!("rank {rank} ({})", other.path.display());
    let there = || format!("rank 0 ({})", first.path.display());
    for (name, want) in &first.tensors {
        let Some(got) = other.tensors.get(name) else {
            bail!("tensor {name:?} of {} is missing on {}", there(), here());
        };
        if got.dtype != want.dtype {
            let (a, b) = (want.dtype, got.dtype);
            bail!("tensor {name:?} is {a} on {}, but {b} on {}", there(), here());
        }
        if got.shape != want.shape {
            let (a, b) = (&want.shape, &got.shape);
            bail!("tensor {name:?} has shape {a:?} on {}, but {b:?} on {}", there(), here());
        }
    }
    match other.tensors.keys().find(|name| !first.tensors.contains_key(*name)) {
        Some(name) => bail!("tensor {name:?} of {} is missing on {}", here(), there()),
        None => Ok(()),
    }
}

/// Names, types and shapes.
pub fn shapes(input: &Input) -> Vec<(&str, DType, &[usize])> {
    input.tensors.iter().map(|(name, t)| (&**name, t.dtype, &*t.shape)).collect()
}

/// Does the operator exist for every tensor?
pub fn check_op(input: &Input, op: ReduceOp) -> Result<(), Usage> {
    match input.tensors.iter().find(|(_, t)| !op.supports(t.dtype)) {
        Some((name, t)) => Err(Usage(format!(
            "{op} works on integers only, but tensor {name:?} is {} ({})",
            t.dtype,
            input.path.display()
        ))),
        None => Ok(()),
    }
}
