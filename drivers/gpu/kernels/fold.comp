// The kernels for Vulkan: built once for each of the modules in src/kernel/spirv.rs.
#version 450
#extension GL_GOOGLE_include_directive : require

#include "lang_glsl.h"
#include "spans_glsl.h"
#include "codes.h"
#include "word.h"
#include "f32.h"
#include "f64.h"
#include "small.h"
#include "int.h"
#include "long.h"
#include "element.h"
#include "fold.h"
