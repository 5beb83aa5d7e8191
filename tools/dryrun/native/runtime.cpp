// Stands in for libcudart. The signatures are those of NVIDIA's headers.
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "core.h"

using namespace null_device;

namespace {

thread_local cudaError_t last = cudaSuccess;

cudaError_t say(cudaError_t code) {
    if (code != cudaSuccess) last = code;
    return code;
}

cudaError_t in_capture() { return say(cudaErrorStreamCaptureUnsupported); }

struct Configuration {
    dim3 grid, block;
    size_t shared;
    void* stream;
};
thread_local std::vector<Configuration> configurations;

std::mutex pinned_mutex;
std::map<const char*, size_t> pinned;

bool is_pinned(const void* pointer) {
    std::lock_guard<std::mutex> lock(pinned_mutex);
    auto at = static_cast<const char*>(pointer);
    auto next = pinned.upper_bound(at);
    if (next == pinned.begin()) return false;
    --next;
    return at < next->first + next->second;
}

const char* kind_of(cudaMemcpyKind kind, const void* to, const void* from) {
    switch (kind) {
        case cudaMemcpyHostToHost: return "h2h";
        case cudaMemcpyHostToDevice: return "h2d";
        case cudaMemcpyDeviceToHost: return "d2h";
        case cudaMemcpyDeviceToDevice: return "d2d";
        default: break;
    }
    if (on_device(from)) return on_device(to) ? "d2d" : "d2h";
    return on_device(to) ? "h2d" : "h2h";
}

cudaError_t launch_kernel(const void* kernel, dim3 grid, dim3 block, size_t shared, const void* stream) {
    const unsigned g[3] = {grid.x, grid.y, grid.z}, b[3] = {block.x, block.y, block.z};
    bool empty = !grid.x || !grid.y || !grid.z || !block.x || !block.y || !block.z;
    bool large = block.x * block.y * block.z > 1024 || grid.y > 65535 || grid.z > 65535;
    if (empty || large) return say(cudaErrorInvalidConfiguration);
    if (shared > static_cast<size_t>(fact("shared_optin"))) return say(cudaErrorInvalidValue);
    launch(kernel, g, b, shared, stream);
    return cudaSuccess;
}

}  // namespace

extern "C" {

// Kernels and how they are launched.

SHOWN void** __cudaRegisterFatBinary(void*) { return static_cast<void**>(std::malloc(sizeof(void*))); }
SHOWN void __cudaRegisterFatBinaryEnd(void**) {}
SHOWN void __cudaUnregisterFatBinary(void** binary) { std::free(binary); }
SHOWN void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}
SHOWN void __cudaRegisterFunction(void**, const char* host, char*, const char* name, int, uint3*, uint3*, dim3*, dim3*,
                                  int*) {
    name_kernel(host, name);
}
SHOWN unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, void* stream) {
    configurations.push_back({grid, block, shared, stream});
    return 0;
}
SHOWN cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream) {
    if (configurations.empty()) return say(cudaErrorMissingConfiguration);
    Configuration& top = configurations.back();
    *grid = top.grid;
    *block = top.block;
    *shared = top.shared;
    *static_cast<void**>(stream) = top.stream;
    configurations.pop_back();
    return cudaSuccess;
}
SHOWN cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* host) {
    *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(host));
    return cudaSuccess;
}
SHOWN cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void**, size_t shared,
                                     cudaStream_t stream) {
    return launch_kernel(kernel, grid, block, shared, stream);
}
SHOWN cudaError_t cudaLaunchKernel(const void* kernel, dim3 grid, dim3 block, void**, size_t shared,
                                   cudaStream_t stream) {
    return launch_kernel(kernel, grid, block, shared, stream);
}
SHOWN cudaError_t cudaLaunchCooperativeKernel(const void* kernel, dim3 grid, dim3 block, void**, size_t shared,
                                              cudaStream_t stream) {
    return launch_kernel(kernel, grid, block, shared, stream);
}
SHOWN cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* kernel, void**) {
    return launch_kernel(kernel, config->gridDim, config->blockDim, config->dynamicSmemBytes, config->stream);
}
SHOWN cudaError_t cudaLibraryLoadData(cudaLibrary_t* library, const void*, cudaJitOption*, void**, unsigned,
                                      cudaLibraryOption*, void**, unsigned) {
    *library = static_cast<cudaLibrary_t>(handle());
    return cudaSuccess;
}
SHOWN cudaError_t cudaLibraryUnload(cudaLibrary_t) { return cudaSuccess; }
SHOWN cudaError_t cudaLibraryGetKernel(cudaKernel_t* kernel, cudaLibrary_t, const char* name) {
    *kernel = static_cast<cudaKernel_t>(handle());
    name_kernel(*kernel, name);
    return cudaSuccess;
}
SHOWN cudaError_t cudaKernelSetAttributeForDevice(cudaKernel_t, cudaFuncAttribute, int, int) { return cudaSuccess; }
SHOWN cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute attribute, int value) {
    bool shared = attribute == cudaFuncAttributeMaxDynamicSharedMemorySize;
    return shared && value > fact("shared_optin") ? say(cudaErrorInvalidValue) : cudaSuccess;
}
SHOWN cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
    log("estimate", "cudaFuncGetAttributes");
    std::memset(attributes, 0, sizeof *attributes);
    attributes->maxThreadsPerBlock = 1024;
    attributes->numRegs = 32;
    attributes->binaryVersion = attributes->ptxVersion = static_cast<int>(fact("major") * 10 + fact("minor"));
    attributes->maxDynamicSharedSizeBytes = static_cast<int>(fact("shared_optin"));
    return cudaSuccess;
}
SHOWN cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void*, int threads,
                                                                         size_t shared, unsigned) {
    // Without the registers, which only the kernel's code tells.
    log("estimate", "cudaOccupancyMaxActiveBlocksPerMultiprocessor");
    long long most = threads > 0 ? fact("threads") / threads : 0;
    if (shared) most = std::min<long long>(most, fact("shared_multiprocessor") / static_cast<long long>(shared));
    *blocks = static_cast<int>(std::min<long long>(most, fact("blocks")));
    return cudaSuccess;
}

// The device.

SHOWN cudaError_t cudaGetDeviceCount(int* count) {
    *count = 1;
    return cudaSuccess;
}
SHOWN cudaError_t cudaGetDevice(int* device) {
    *device = 0;
    return cudaSuccess;
}
SHOWN cudaError_t cudaSetDevice(int device) { return device == 0 ? cudaSuccess : say(cudaErrorInvalidDevice); }
SHOWN cudaError_t cudaRuntimeGetVersion(int* version) {
    *version = CUDART_VERSION;
    return cudaSuccess;
}
SHOWN cudaError_t cudaDriverGetVersion(int* version) {
    *version = CUDART_VERSION;
    return cudaSuccess;
}
SHOWN cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
    std::memset(properties, 0, sizeof *properties);
    std::strcpy(properties->name, "null device");
    properties->totalGlobalMem = static_cast<size_t>(fact("memory"));
    properties->major = static_cast<int>(fact("major"));
    properties->minor = static_cast<int>(fact("minor"));
    properties->multiProcessorCount = static_cast<int>(fact("multiprocessors"));
    properties->maxThreadsPerMultiProcessor = static_cast<int>(fact("threads"));
    properties->maxBlocksPerMultiProcessor = static_cast<int>(fact("blocks"));
    properties->sharedMemPerBlock = 48 << 10;
    properties->sharedMemPerBlockOptin = static_cast<size_t>(fact("shared_optin"));
    properties->sharedMemPerMultiprocessor = static_cast<size_t>(fact("shared_multiprocessor"));
    properties->reservedSharedMemPerBlock = fact("major") >= 8 ? 1024 : 0;
    properties->regsPerBlock = properties->regsPerMultiprocessor = 65536;
    properties->l2CacheSize = static_cast<int>(fact("l2"));
    properties->warpSize = 32;
    properties->maxThreadsPerBlock = 1024;
    properties->maxThreadsDim[0] = properties->maxThreadsDim[1] = 1024;
    properties->maxThreadsDim[2] = 64;
    properties->maxGridSize[0] = 2147483647;
    properties->maxGridSize[1] = properties->maxGridSize[2] = 65535;
    properties->totalConstMem = 65536;
    properties->memPitch = 2147483647;
    properties->textureAlignment = 512;
    properties->asyncEngineCount = 2;
    properties->concurrentKernels = properties->unifiedAddressing = properties->managedMemory = 1;
    properties->canMapHostMemory = properties->cooperativeLaunch = properties->memoryPoolsSupported = 1;
    return cudaSuccess;
}
SHOWN cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
    struct Known {
        cudaDeviceAttr attribute;
        const char* fact;
    };
    static const Known facts[] = {
        {cudaDevAttrComputeCapabilityMajor, "major"},
        {cudaDevAttrComputeCapabilityMinor, "minor"},
        {cudaDevAttrMultiProcessorCount, "multiprocessors"},
        {cudaDevAttrMaxThreadsPerMultiProcessor, "threads"},
        {cudaDevAttrMaxBlocksPerMultiprocessor, "blocks"},
        {cudaDevAttrMaxSharedMemoryPerBlockOptin, "shared_optin"},
        {cudaDevAttrMaxSharedMemoryPerMultiprocessor, "shared_multiprocessor"},
        {cudaDevAttrL2CacheSize, "l2"},
    };
    struct Same {
        cudaDeviceAttr attribute;
        int value;
    };
    static const Same same[] = {
        {cudaDevAttrMaxThreadsPerBlock, 1024},
        {cudaDevAttrMaxBlockDimX, 1024},
        {cudaDevAttrMaxBlockDimY, 1024},
        {cudaDevAttrMaxBlockDimZ, 64},
        {cudaDevAttrMaxGridDimX, 2147483647},
        {cudaDevAttrMaxGridDimY, 65535},
        {cudaDevAttrMaxGridDimZ, 65535},
        {cudaDevAttrMaxSharedMemoryPerBlock, 48 << 10},
        {cudaDevAttrMaxRegistersPerBlock, 65536},
        {cudaDevAttrMaxRegistersPerMultiprocessor, 65536},
        {cudaDevAttrWarpSize, 32},
        {cudaDevAttrMemoryPoolsSupported, 1},
        {cudaDevAttrCooperativeLaunch, 1},
        {cudaDevAttrConcurrentKernels, 1},
        {cudaDevAttrUnifiedAddressing, 1},
        {cudaDevAttrIntegrated, 0},
        {cudaDevAttrHostNativeAtomicSupported, 0},
    };
    for (const Known& known : facts) {
        if (known.attribute == attribute) {
            *value = static_cast<int>(fact(known.fact));
            return cudaSuccess;
        }
    }
    for (const Same& known : same) {
        if (known.attribute == attribute) {
            *value = known.value;
            return cudaSuccess;
        }
    }
    // Not 1: what is asked for is most often whether the device has something.
    *value = 0;
    unknown(("cudaDeviceGetAttribute " + std::to_string(attribute)).c_str());
    return cudaSuccess;
}
SHOWN cudaError_t cudaDeviceSynchronize() {
    if (forbidden("cudaDeviceSynchronize", nullptr, true)) return in_capture();
    log("sync", "cudaDeviceSynchronize");
    return cudaSuccess;
}
SHOWN cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned, unsigned long long,
                                                   cudaDriverEntryPointQueryResult* status) {
    *function = dlsym(RTLD_DEFAULT, symbol);
    if (!*function) unknown(symbol);
    if (status) *status = *function ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    return cudaSuccess;
}

// Errors.

SHOWN cudaError_t cudaGetLastError() {
    cudaError_t code = last;
    last = cudaSuccess;
    return code;
}
SHOWN cudaError_t cudaPeekAtLastError() { return last; }
SHOWN const char* cudaGetErrorName(cudaError_t code) {
    switch (code) {
        case cudaSuccess: return "cudaSuccess";
        case cudaErrorMemoryAllocation: return "cudaErrorMemoryAllocation";
        case cudaErrorInvalidConfiguration: return "cudaErrorInvalidConfiguration";
        case cudaErrorStreamCaptureUnsupported: return "cudaErrorStreamCaptureUnsupported";
        case cudaErrorStreamCaptureInvalidated: return "cudaErrorStreamCaptureInvalidated";
        default: return "cudaError of the null device";
    }
}
SHOWN const char* cudaGetErrorString(cudaError_t code) { return cudaGetErrorName(code); }

// Memory.

SHOWN cudaError_t cudaMalloc(void** pointer, size_t bytes) {
    if (forbidden("cudaMalloc", nullptr, true)) return in_capture();
    *pointer = allocate(bytes);
    log("alloc", "cudaMalloc", std::to_string(bytes));
    return *pointer ? cudaSuccess : say(cudaErrorMemoryAllocation);
}
SHOWN cudaError_t cudaFree(void* pointer) {
    if (!pointer) return cudaSuccess;
    if (forbidden("cudaFree", nullptr, true)) return in_capture();
    return release(pointer) ? cudaSuccess : say(cudaErrorInvalidValue);
}
SHOWN cudaError_t cudaMallocFromPoolAsync(void** pointer, size_t bytes, cudaMemPool_t, cudaStream_t) {
    *pointer = allocate(bytes);
    log("alloc", "cudaMallocFromPoolAsync", std::to_string(bytes));
    return *pointer ? cudaSuccess : say(cudaErrorMemoryAllocation);
}
SHOWN cudaError_t cudaFreeAsync(void* pointer, cudaStream_t) {
    return release(pointer) ? cudaSuccess : say(cudaErrorInvalidValue);
}
SHOWN cudaError_t cudaHostAlloc(void** pointer, size_t bytes, unsigned) {
    size_t wanted = (bytes + 511) / 512 * 512;
    *pointer = std::aligned_alloc(512, wanted ? wanted : 512);
    if (!*pointer) return say(cudaErrorMemoryAllocation);
    std::lock_guard<std::mutex> lock(pinned_mutex);
    pinned[static_cast<char*>(*pointer)] = wanted;
    return cudaSuccess;
}
SHOWN cudaError_t cudaMallocHost(void** pointer, size_t bytes) { return cudaHostAlloc(pointer, bytes, 0); }
SHOWN cudaError_t cudaFreeHost(void* pointer) {
    {
        std::lock_guard<std::mutex> lock(pinned_mutex);
        pinned.erase(static_cast<char*>(pointer));
    }
    std::free(pointer);
    return cudaSuccess;
}
SHOWN cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
    *total = static_cast<size_t>(fact("memory"));
    *free = *total - in_use();
    return cudaSuccess;
}
SHOWN cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
    std::memset(attributes, 0, sizeof *attributes);
    attributes->type = on_device(pointer)   ? cudaMemoryTypeDevice
                       : is_pinned(pointer) ? cudaMemoryTypeHost
                                            : cudaMemoryTypeUnregistered;
    if (attributes->type == cudaMemoryTypeDevice) attributes->devicePointer = const_cast<void*>(pointer);
    else attributes->hostPointer = const_cast<void*>(pointer);
    return cudaSuccess;
}
SHOWN cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps*) {
    *pool = static_cast<cudaMemPool_t>(handle());
    return cudaSuccess;
}
SHOWN cudaError_t cudaMemPoolDestroy(cudaMemPool_t) { return cudaSuccess; }
SHOWN cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, size_t) { return cudaSuccess; }
SHOWN cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*) { return cudaSuccess; }
SHOWN cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t, cudaMemPoolAttr attribute, void* value) {
    // The first three are switches, of type int; the others are sizes.
    if (attribute <= cudaMemPoolReuseAllowInternalDependencies) *static_cast<int*>(value) = 1;
    else *static_cast<unsigned long long*>(value) = in_use();
    return cudaSuccess;
}

// Copies.

SHOWN cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
    if (forbidden("cudaMemcpy", nullptr, true)) return in_capture();
    copy(kind_of(kind, to, from), to, from, bytes, "cudaMemcpy", nullptr);
    return cudaSuccess;
}
SHOWN cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
    copy(kind_of(kind, to, from), to, from, bytes, "cudaMemcpyAsync", stream);
    return cudaSuccess;
}
SHOWN cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                                    size_t height, cudaMemcpyKind kind, cudaStream_t stream) {
    const char* name = kind_of(kind, to, from);
    if (to_pitch == width && from_pitch == width) {
        copy(name, to, from, width * height, "cudaMemcpy2DAsync", stream);
        return cudaSuccess;
    }
    // One copy in the log; its bytes may lie apart, so that it moves none.
    copy(name, to, to, width * height, "cudaMemcpy2DAsync", stream);
    return cudaSuccess;
}
SHOWN cudaError_t cudaMemcpyFromSymbol(void* to, const void*, size_t bytes, size_t, cudaMemcpyKind) {
    if (forbidden("cudaMemcpyFromSymbol", nullptr, true)) return in_capture();
    unknown("cudaMemcpyFromSymbol");
    std::memset(to, 0, bytes);
    return cudaSuccess;
}
SHOWN cudaError_t cudaMemset(void* pointer, int value, size_t bytes) {
    if (forbidden("cudaMemset", nullptr, true)) return in_capture();
    clear(pointer, value, bytes, "cudaMemset");
    return cudaSuccess;
}
SHOWN cudaError_t cudaMemsetAsync(void* pointer, int value, size_t bytes, cudaStream_t) {
    clear(pointer, value, bytes, "cudaMemsetAsync");
    return cudaSuccess;
}

// Streams and events.

SHOWN cudaError_t cudaStreamCreate(cudaStream_t* stream) {
    *stream = static_cast<cudaStream_t>(handle());
    return cudaSuccess;
}
SHOWN cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) { return cudaStreamCreate(stream); }
SHOWN cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }
SHOWN cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    if (forbidden("cudaStreamSynchronize", stream, false)) return in_capture();
    log("sync", "cudaStreamSynchronize");
    return cudaSuccess;
}
SHOWN cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) {
    log("event", "cudaStreamWaitEvent");
    return cudaSuccess;
}
SHOWN cudaError_t cudaEventCreate(cudaEvent_t* event) {
    *event = static_cast<cudaEvent_t>(handle());
    return cudaSuccess;
}
SHOWN cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) { return cudaEventCreate(event); }
SHOWN cudaError_t cudaEventDestroy(cudaEvent_t) { return cudaSuccess; }
SHOWN cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) {
    log("event", "cudaEventRecord");
    return cudaSuccess;
}
SHOWN cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned) {
    return cudaEventRecord(event, stream);
}
SHOWN cudaError_t cudaEventSynchronize(cudaEvent_t) {
    if (forbidden("cudaEventSynchronize", nullptr, true)) return in_capture();
    log("sync", "cudaEventSynchronize");
    return cudaSuccess;
}
SHOWN cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t, cudaEvent_t) {
    log("estimate", "cudaEventElapsedTime");
    *milliseconds = 1;
    return cudaSuccess;
}
SHOWN cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
    log("host", "cudaLaunchHostFunc", capturing(stream) ? "captured" : "now");
    if (!capturing(stream)) function(data);
    return cudaSuccess;
}

// Graphs.

SHOWN cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
    begin_capture(stream);
    return cudaSuccess;
}
SHOWN cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t* graph) {
    *graph = end_capture() ? static_cast<cudaGraph_t>(handle()) : nullptr;
    return *graph ? cudaSuccess : say(cudaErrorStreamCaptureInvalidated);
}
SHOWN cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
    *status = capturing(stream) ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return cudaSuccess;
}
SHOWN cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t, unsigned long long) {
    *executable = static_cast<cudaGraphExec_t>(handle());
    return cudaSuccess;
}
SHOWN cudaError_t cudaGraphLaunch(cudaGraphExec_t, cudaStream_t) {
    log("graph", "cudaGraphLaunch");
    return cudaSuccess;
}
SHOWN cudaError_t cudaGraphDestroy(cudaGraph_t) { return cudaSuccess; }
SHOWN cudaError_t cudaGraphExecDestroy(cudaGraphExec_t) { return cudaSuccess; }
}
