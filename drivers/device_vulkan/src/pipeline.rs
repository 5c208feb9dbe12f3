//! Compiled kernels, shared by all queues of a device.

use crate::fault;
use crate::specialise::specialise;
use ash::vk;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use unisono_gpu::kernel::{FloatControls, Module, Widths};
use unisono_gpu::{Arithmetic, GpuError, Variant};
use vulkano::VulkanObject;
use vulkano::descriptor_set::layout::{
    DescriptorSetLayout, DescriptorSetLayoutBinding, DescriptorSetLayoutCreateInfo, DescriptorType,
};
use vulkano::device::Device;
use vulkano::pipeline::PipelineLayout;
use vulkano::pipeline::layout::PipelineLayoutCreateInfo;
use vulkano::shader::ShaderStages;

/// All kernels of a device.
pub(crate) struct Pipelines {
    device: Arc<Device>,
    /// How errors call the device.
    name: String,
    /// What kernels may ask for.
    offers: Arithmetic,
    controls: FloatControls,
    made: Mutex<Made>,
}

/// What has been made so far.
#[derive(Default)]
struct Made {
    /// SPIR-V, not specialised yet.
    modules: HashMap<Module, Vec<u32>>,
    layouts: HashMap<(u8, u8), Arc<PipelineLayout>>,
    kernels: HashMap<Variant, VulkanKernel>,
}

/// A compiled variant.
#[derive(Clone, Debug)]
pub struct VulkanKernel(Arc<Compiled>);

#[derive(Debug)]
struct Compiled {
    handle: vk::Pipeline,
    layout: Arc<PipelineLayout>,
    device: Arc<Device>,
    spans: usize,
}

/// A shader module.
struct Shader {
    handle: vk::ShaderModule,
    device: Arc<Device>,
}

impl Pipelines {
    pub(crate) fn new(device: Arc<Device>, offers: Arithmetic, name: &str) -> Self {
        Self {
            controls: controls(&device),
            device,
            name: name.to_owned(),
            offers,
            made: Mutex::default(),
        }
    }

    /// The kernel of a variant, compiled the first time.
    pub(crate) fn get(&self, variant: &Variant) -> Result<VulkanKernel, GpuError> {
        // Every entry is whole, whoever panicked.
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kernel) = made.kernels.get(variant) {
            return Ok(kernel.clone());
        }
        let layout = self.layout(&mut made, variant.sources, variant.dests)?;
        let words = specialise(self.module(&mut made, variant)?, &variant.constants()?);
        let handle = self
            .shader(&words)
            .and_then(|shader| self.compile(&shader, &layout))
            .map_err(|result| self.refused(variant, fault::words(result)))?;
        let spans = usize::from(variant.sources) + usize::from(variant.dests);
        let device = self.device.clone();
        let kernel = VulkanKernel(Arc::new(Compiled { handle, layout, device, spans }));
        made.kernels.insert(*variant, kernel.clone());
        Ok(kernel)
    }

    /// The SPIR-V of a variant, not specialised yet.
    fn module<'a>(&self, made: &'a mut Made, variant: &Variant) -> Result<&'a [u32], GpuError> {
        let module = variant.module();
        let (needs, has) = match module {
            Module::Single8 | Module::Int8 => ("storageBuffer8BitAccess", self.offers.storage_8),
            Module::Double64 => ("shaderFloat64", self.offers.native_f64),
            Module::Long64 => ("shaderInt64", self.offers.native_i64),
            Module::Single | Module::Double | Module::Int | Module::Long => ("nothing", true),
        };
        if !has {
            return Err(self.refused(variant, format!("it needs {needs}, which is not on")));
        }
        Ok(made.modules.entry(module).or_insert_with(|| module.words(self.controls)))
    }

    fn shader(&self, words: &[u32]) -> Result<Shader, vk::Result> {
        let info = vk::ShaderModuleCreateInfo::default().code(words);
        let mut handle = vk::ShaderModule::null();
        let create = self.device.fns().v1_0.create_shader_module;
        // SAFETY: the words are valid SPIR-V that asks for nothing that is not on.
        unsafe { create(self.device.handle(), &info, std::ptr::null(), &mut handle) }.result()?;
        Ok(Shader { handle, device: self.device.clone() })
    }

    /// The layout for so many spans: parameters, sources, destinations.
    fn layout(
        &self,
        made: &mut Made,
        sources: u8,
        dests: u8,
    ) -> Result<Arc<PipelineLayout>, GpuError> {
        if let Some(layout) = made.layouts.get(&(sources, dests)) {
            return Ok(layout.clone());
        }
        let failed = |call| move |error| fault::wrapped(&self.name, call, error);
        let binding = |count: u8| DescriptorSetLayoutBinding {
            descriptor_count: count.into(),
            stages: ShaderStages::COMPUTE,
            ..DescriptorSetLayoutBinding::descriptor_type(DescriptorType::StorageBuffer)
        };
        let info = DescriptorSetLayoutCreateInfo {
            bindings: [(0, binding(1)), (1, binding(sources)), (2, binding(dests))].into(),
            ..DescriptorSetLayoutCreateInfo::default()
        };
        let set = DescriptorSetLayout::new(self.device.clone(), info)
            .map_err(failed("vkCreateDescriptorSetLayout"))?;
        let info = PipelineLayoutCreateInfo {
            set_layouts: vec![set],
            ..PipelineLayoutCreateInfo::default()
        };
        let layout = PipelineLayout::new(self.device.clone(), info)
            .map_err(failed("vkCreatePipelineLayout"))?;
        made.layouts.insert((sources, dests), layout.clone());
        Ok(layout)
    }

    fn compile(
        &self,
        shader: &Shader,
        layout: &PipelineLayout,
    ) -> Result<vk::Pipeline, vk::Result> {
        let stage = vk::PipelineShaderStageCreateInfo::default()
            .stage(vk::ShaderStageFlags::COMPUTE)
            .module(shader.handle)
            .name(c"main");
        let info = vk::ComputePipelineCreateInfo::default().stage(stage).layout(layout.handle());
        let mut handle = vk::Pipeline::null();
        let create = self.device.fns().v1_0.create_compute_pipelines;
        let none = vk::PipelineCache::null();
        // SAFETY: all structures live until the call returns, and the layout has what the module
        // reads.
        unsafe { create(self.device.handle(), none, 1, &info, std::ptr::null(), &mut handle) }
            .result_with_success(handle)
    }

    fn refused(&self, variant: &Variant, text: String) -> GpuError {
        let op = variant.op.map_or("copy", unisono_core::ReduceOp::name);
        let kernel = format!("{} {op} of {} sources", variant.dtype, variant.sources);
        GpuError::Build { device: self.name.clone(), kernel, text }
    }
}

impl VulkanKernel {
    pub(crate) fn handle(&self) -> vk::Pipeline {
        self.0.handle
    }

    pub(crate) fn layout(&self) -> vk::PipelineLayout {
        self.0.layout.handle()
    }

    pub(crate) fn set_layout(&self) -> vk::DescriptorSetLayout {
        self.0.layout.set_layouts()[0].handle()
    }

    /// Sources and destinations.
    pub(crate) fn spans(&self) -> usize {
        self.0.spans
    }
}

impl PartialEq for VulkanKernel {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Drop for Compiled {
    fn drop(&mut self) {
        let destroy = self.device.fns().v1_0.destroy_pipeline;
        // SAFETY: a queue waits for its batches before it lets go of the last kernel.
        unsafe { destroy(self.device.handle(), self.handle, std::ptr::null()) };
    }
}

impl Drop for Shader {
    fn drop(&mut self) {
        let destroy = self.device.fns().v1_0.destroy_shader_module;
        // SAFETY: pipelines do not need the module that they were made from.
        unsafe { destroy(self.device.handle(), self.handle, std::ptr::null()) };
    }
}

/// What the device promises of its arithmetic: all of it is asked for.
fn controls(device: &Device) -> FloatControls {
    use vulkano::device::physical::ShaderFloatControlsIndependence as Independence;
    let has = device.physical_device().properties();
    // Where widths depend on each other, the same is asked of all or of none. Kernels have no
    // 16-bit arithmetic, for which nothing is asked: so binary64 gets no more where only binary32
    // is independent, and nothing gets anything where none is.
    let widths = |independence: Option<Independence>, w32: Option<bool>, w64: Option<bool>| {
        let (free32, free64) = match independence {
            Some(Independence::All) => (true, true),
            Some(Independence::Float32Only) => (true, false),
            _ => (false, false),
        };
        Widths { w32: free32 && w32 == Some(true), w64: free64 && w64 == Some(true) }
    };
    FloatControls {
        denorm_preserve: widths(
            has.denorm_behavior_independence,
            has.shader_denorm_preserve_float32,
            has.shader_denorm_preserve_float64,
        ),
        signed_zero_inf_nan_preserve: widths(
            Some(Independence::All),
            has.shader_signed_zero_inf_nan_preserve_float32,
            has.shader_signed_zero_inf_nan_preserve_float64,
        ),
        rounding_mode_rte: widths(
            has.rounding_mode_independence,
            has.shader_rounding_mode_rte_float32,
            has.shader_rounding_mode_rte_float64,
        ),
    }
}
