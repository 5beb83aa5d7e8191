// Stands in for libcudnn. Graphs (the backend API) are accepted or refused as a whole; of the older calls, those that
// need no search for an algorithm succeed, and what is left is refused.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "core.h"

using namespace null_device;

namespace {

constexpr int SUCCESS = 0, NOT_SUPPORTED = 3000;

// Attributes of the backend API that a graph's engine is asked for.
enum : int {
    HEURISTICS_RESULTS = 202,
    CONFIGURATION_ENGINE = 300,
    CONFIGURATION_WORKSPACE = 303,
    CONFIGURATION_SHARED_MEMORY = 304,
    PLAN_WORKSPACE = 402,
    ENGINE_INDEX = 1301,
};

bool refuses() { return fact("cudnn_refuses") != 0; }

int create(void** to) {
    *to = handle();
    return SUCCESS;
}

}  // namespace

extern "C" {

SHOWN size_t cudnnGetVersion() { return static_cast<size_t>(fact("cudnn_version")); }
SHOWN size_t cudnnGetCudartVersion() { return 0; }
SHOWN const char* cudnnGetErrorString(int status) {
    return status == SUCCESS ? "CUDNN_STATUS_SUCCESS" : "CUDNN_STATUS_NOT_SUPPORTED";
}
SHOWN void cudnnGetLastErrorString(char* message, size_t size) {
    if (size) std::strncpy(message, refuses() ? "the null device refuses cuDNN graphs" : "", size);
}

SHOWN int cudnnCreate(void** to) { return create(to); }
SHOWN int cudnnDestroy(void*) { return SUCCESS; }
SHOWN int cudnnSetStream(void*, void*) { return SUCCESS; }
SHOWN int cudnnGetStream(void*, void** stream) {
    *stream = nullptr;
    return SUCCESS;
}

SHOWN int cudnnBackendCreateDescriptor(int, void** to) { return create(to); }
SHOWN int cudnnBackendDestroyDescriptor(void*) { return SUCCESS; }
SHOWN int cudnnBackendSetAttribute(void*, int, int, int64_t, const void*) { return SUCCESS; }
SHOWN int cudnnBackendFinalize(void*) { return refuses() ? NOT_SUPPORTED : SUCCESS; }
SHOWN int cudnnBackendGetAttribute(void*, int attribute, int, int64_t wanted, int64_t* count, void* elements) {
    int64_t found = 0;
    switch (attribute) {
        case HEURISTICS_RESULTS:
        case CONFIGURATION_ENGINE:
            // The caller brings the descriptors to fill.
            found = 1;
            break;
        case CONFIGURATION_WORKSPACE:
        case PLAN_WORKSPACE:
        case ENGINE_INDEX:
            found = 1;
            if (elements && wanted) *static_cast<int64_t*>(elements) = 0;
            break;
        case CONFIGURATION_SHARED_MEMORY:
            found = 1;
            if (elements && wanted) *static_cast<int32_t*>(elements) = 0;
            break;
        default:
            // Notes and knobs: there are none.
            break;
    }
    if (count) *count = found;
    return SUCCESS;
}
SHOWN int cudnnBackendExecute(void*, void*, void*) {
    log("library", "cudnnBackendExecute");
    return SUCCESS;
}

#define CREATE(name) \
    SHOWN int name(void** to) { return create(to); }
CREATE(cudnnCreateActivationDescriptor)
CREATE(cudnnCreateDropoutDescriptor)
CREATE(cudnnCreateLRNDescriptor)
CREATE(cudnnCreatePoolingDescriptor)
CREATE(cudnnCreateReduceTensorDescriptor)
CREATE(cudnnCreateTensorDescriptor)

#define QUIET(name) \
    SHOWN int name() { return SUCCESS; }
QUIET(cudnnDestroyActivationDescriptor)
QUIET(cudnnDestroyDropoutDescriptor)
QUIET(cudnnDestroyLRNDescriptor)
QUIET(cudnnDestroyPoolingDescriptor)
QUIET(cudnnDestroyReduceTensorDescriptor)
QUIET(cudnnDestroyTensorDescriptor)
QUIET(cudnnSetActivationDescriptor)
QUIET(cudnnSetLRNDescriptor)
QUIET(cudnnSetPoolingNdDescriptor)
QUIET(cudnnSetReduceTensorDescriptor)
QUIET(cudnnSetTensorNdDescriptor)
QUIET(cudnnDeriveBNTensorDescriptor)

SHOWN int cudnnGetReductionIndicesSize(void*, void*, void*, void*, size_t* bytes) {
    *bytes = 0;
    return SUCCESS;
}
SHOWN int cudnnGetReductionWorkspaceSize(void*, void*, void*, void*, size_t* bytes) {
    *bytes = 0;
    return SUCCESS;
}

#define COMPUTE(name)          \
    SHOWN int name() {         \
        log("library", #name); \
        return SUCCESS;        \
    }
COMPUTE(cudnnActivationForward)
COMPUTE(cudnnAddTensor)
COMPUTE(cudnnBatchNormalizationForwardInference)
COMPUTE(cudnnLRNCrossChannelForward)
COMPUTE(cudnnPoolingForward)
COMPUTE(cudnnReduceTensor)
COMPUTE(cudnnSoftmaxForward)
}
