//! Software drivers for both GPU APIs, and the tools that check kernels.

pub mod check;

use crate::install;
use anyhow::{Context, Result};
use std::path::Path;

/// A package and a file that shows that it, or something like it, is there.
struct Package {
    name: &'static str,
    shown_by: &'static [&'static str],
}

/// What the GPU drivers' tests need. On other systems the same files do.
const PACKAGES: &[Package] = &[
    Package {
        name: "mesa-vulkan-drivers",
        shown_by: &[
            "/usr/share/vulkan/icd.d/lvp_icd.x86_64.json",
            "/usr/share/vulkan/icd.d/lvp_icd.aarch64.json",
            "/usr/share/vulkan/icd.d/lvp_icd.json",
        ],
    },
    Package { name: "pocl-opencl-icd", shown_by: &["/etc/OpenCL/vendors/pocl.icd"] },
    Package {
        name: "ocl-icd-libopencl1",
        shown_by: &[
            "/usr/lib/x86_64-linux-gnu/libOpenCL.so.1",
            "/usr/lib/aarch64-linux-gnu/libOpenCL.so.1",
            "/usr/lib64/libOpenCL.so.1",
            "/usr/lib/libOpenCL.so.1",
        ],
    },
    Package {
        name: "vulkan-validationlayers",
        shown_by: &["/usr/share/vulkan/explicit_layer.d/VkLayer_khronos_validation.json"],
    },
    Package { name: "glslang-tools", shown_by: &["/usr/bin/glslangValidator"] },
    Package { name: "spirv-tools", shown_by: &["/usr/bin/spirv-val"] },
    // The kernels are a C program, too, for a test.
    Package { name: "gcc", shown_by: &["/usr/bin/gcc", "/usr/bin/cc"] },
];

/// Installs what is missing.
///
/// # Errors
/// If something is missing and cannot be installed; names the packages.
pub fn prepare() -> Result<()> {
    let missing = missing(|file| Path::new(file).exists());
    if missing.is_empty() {
        return Ok(());
    }
    install::apt(&missing).context("software drivers for Vulkan and OpenCL, and shader tools")
}

fn missing(is_there: impl Fn(&str) -> bool) -> Vec<&'static str> {
    let absent = |package: &&Package| !package.shown_by.iter().any(|file| is_there(file));
    PACKAGES.iter().filter(absent).map(|package| package.name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named() {
        assert_eq!(missing(|_| true), Vec::<&str>::new());
        assert_eq!(missing(|_| false).len(), PACKAGES.len());
        let all_but_pocl = missing(|file| !file.contains("pocl"));
        assert_eq!(all_but_pocl, ["pocl-opencl-icd"]);
    }
}
