//! Programs, built once for each context and variant, and kernels, made once for each queue.

use crate::context::OpenCl;
use crate::error::Device;
use crate::owned::{ClKernel, ClProgram, Owned};
use opencl3::device::Device as DeviceId;
use opencl3::error_codes::CL_BUILD_PROGRAM_FAILURE;
use opencl3::kernel::create_kernel;
use opencl3::program::{
    CL_PROGRAM_BUILD_LOG, build_program, create_program_with_source, get_program_build_data,
};
use opencl3::types::cl_context;
use std::collections::HashMap;
use std::ffi::CString;
use std::sync::{Arc, Mutex, PoisonError};
use unisono_gpu::kernel::opencl::SOURCE;
use unisono_gpu::{GpuError, Variant};

/// The programs of a context, by the options that they were built with.
#[derive(Debug, Default)]
pub(crate) struct Programs(Mutex<HashMap<String, Arc<Owned<ClProgram>>>>);

/// A kernel of one queue.
#[derive(Clone, Debug)]
pub struct Kernel(pub(crate) Arc<Inner>);

#[derive(Debug)]
pub(crate) struct Inner {
    pub kernel: Owned<ClKernel>,
    /// The queue that sets its arguments: two at once would mix them up.
    pub queue: u64,
    pub spans: usize,
    pub group_size: usize,
}

impl Programs {
    /// The program for a variant. Two threads that want the same one build it once.
    fn get(&self, cl: &OpenCl, variant: &Variant) -> Result<Arc<Owned<ClProgram>>, GpuError> {
        let options = variant.options()?;
        // Held while building: drivers build one program at a time anyway.
        let mut programs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(program) = programs.get(&options) {
            return Ok(program.clone());
        }
        let program = Arc::new(build(cl.raw(), cl.id(), cl.name(), variant, &options)?);
        programs.insert(options, program.clone());
        Ok(program)
    }

    /// A kernel for a variant.
    pub(crate) fn kernel(
        &self,
        cl: &OpenCl,
        variant: &Variant,
        queue: u64,
    ) -> Result<Kernel, GpuError> {
        let program = self.get(cl, variant)?;
        let kernel = create_kernel(program.get(), c"fold")
            .map_err(|code| cl.name().failed("clCreateKernel", code))?;
        // SAFETY: the call gave the reference away.
        let kernel = unsafe { Owned::new(kernel) };
        let spans = usize::from(variant.sources) + usize::from(variant.dests);
        Ok(Kernel(Arc::new(Inner {
            kernel,
            queue,
            spans,
            group_size: variant.group_size as usize,
        })))
    }
}

fn build(
    context: cl_context,
    device: &DeviceId,
    name: &Device,
    variant: &Variant,
    options: &str,
) -> Result<Owned<ClProgram>, GpuError> {
    let program = create_program_with_source(context, &[SOURCE])
        .map_err(|code| name.failed("clCreateProgramWithSource", code))?;
    // SAFETY: the call gave the reference away.
    let program = unsafe { Owned::<ClProgram>::new(program) };
    let error = |text| GpuError::Build { device: name.name(), kernel: title(variant), text };
    let c_options = CString::new(options).map_err(|error_| error(error_.to_string()))?;
    let none = std::ptr::null_mut();
    match build_program(program.get(), &[device.id()], &c_options, None, none) {
        Ok(()) => Ok(program),
        Err(CL_BUILD_PROGRAM_FAILURE) => {
            let log = get_program_build_data(program.get(), device.id(), CL_PROGRAM_BUILD_LOG);
            let log = String::from_utf8_lossy(&log.unwrap_or_default()).trim().to_owned();
            Err(error(format!("{} with {options}: {log}", name.text(CL_BUILD_PROGRAM_FAILURE))))
        }
        Err(code) => Err(error(format!("{} with {options}", name.text(code)))),
    }
}

fn title(variant: &Variant) -> String {
    let Variant { dtype, sources, dests, .. } = variant;
    let op = variant.op.map_or_else(|| "copy".to_owned(), |op| op.to_string());
    format!("{op} of {dtype} from {sources} to {dests}")
}
