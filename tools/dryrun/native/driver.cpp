// Stands in for libcuda: what ONNX Runtime and TensorRT's fused kernels ask of the driver.
#include <cuda.h>

#include <cstdlib>
#include <string>

#include "core.h"

using namespace null_device;

extern "C" {

SHOWN CUresult cuInit(unsigned) { return CUDA_SUCCESS; }
SHOWN CUresult cuDriverGetVersion(int* version) {
    *version = CUDA_VERSION;
    return CUDA_SUCCESS;
}
SHOWN CUresult cuDeviceGetCount(int* count) {
    *count = 1;
    return CUDA_SUCCESS;
}
SHOWN CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice) {
    switch (attribute) {
        case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = static_cast<int>(fact("major")); break;
        case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = static_cast<int>(fact("minor")); break;
        case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = static_cast<int>(fact("multiprocessors")); break;
        case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
            *value = static_cast<int>(fact("shared_optin"));
            break;
        default:
            *value = 0;
            unknown(("cuDeviceGetAttribute " + std::to_string(attribute)).c_str());
    }
    return CUDA_SUCCESS;
}
SHOWN CUresult cuGetErrorName(CUresult code, const char** name) {
    *name = code == CUDA_SUCCESS ? "CUDA_SUCCESS" : "CUDA error of the null device";
    return CUDA_SUCCESS;
}
SHOWN CUresult cuModuleLoadData(CUmodule* module, const void*) {
    *module = static_cast<CUmodule>(handle());
    return CUDA_SUCCESS;
}
SHOWN CUresult cuModuleUnload(CUmodule) { return CUDA_SUCCESS; }
SHOWN CUresult cuModuleGetFunction(CUfunction* function, CUmodule, const char* name) {
    *function = static_cast<CUfunction>(handle());
    name_kernel(*function, name);
    return CUDA_SUCCESS;
}
SHOWN CUresult cuFuncSetAttribute(CUfunction, CUfunction_attribute, int) { return CUDA_SUCCESS; }
SHOWN CUresult cuFuncSetCacheConfig(CUfunction, CUfunc_cache) { return CUDA_SUCCESS; }
SHOWN CUresult cuLaunchKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                              unsigned bz, unsigned shared, CUstream stream, void**, void**) {
    const unsigned grid[3] = {gx, gy, gz}, block[3] = {bx, by, bz};
    launch(function, grid, block, shared, stream);
    return CUDA_SUCCESS;
}
SHOWN CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                                         unsigned by, unsigned bz, unsigned shared, CUstream stream, void**) {
    const unsigned grid[3] = {gx, gy, gz}, block[3] = {bx, by, bz};
    launch(function, grid, block, shared, stream);
    return CUDA_SUCCESS;
}
// A descriptor for the tensor memory accelerator: 128 bytes that only a kernel reads.
SHOWN CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                                      const cuuint64_t*, const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave,
                                      CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
    *map = {};
    return CUDA_SUCCESS;
}
}
