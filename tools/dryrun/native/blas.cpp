// Stands in for libcublas. Its types stay unnamed: handles are pointers, and enumerations are ints.
#include <string>

#include "core.h"

using namespace null_device;

namespace {

// The size of a product as the report shows it.
std::string size(int m, int n, int k, int batch = 1) {
    std::string text = std::to_string(m) + "x" + std::to_string(n) + "x" + std::to_string(k);
    return batch == 1 ? text : std::to_string(batch) + " of " + text;
}

int call(const char* name, const std::string& more = "") {
    log("library", name, more);
    return 0;
}

}  // namespace

extern "C" {

SHOWN int cublasCreate_v2(void** to) {
    *to = handle();
    return 0;
}
SHOWN int cublasDestroy_v2(void*) { return 0; }
SHOWN int cublasSetStream_v2(void*, void*) { return 0; }
SHOWN int cublasSetMathMode(void*, int) { return 0; }
SHOWN int cublasGetMathMode(void*, int* mode) {
    *mode = 0;
    return 0;
}
SHOWN const char* cublasGetStatusName(int status) {
    return status ? "CUBLAS_STATUS_NOT_SUPPORTED" : "CUBLAS_STATUS_SUCCESS";
}
SHOWN const char* cublasGetStatusString(int status) { return cublasGetStatusName(status); }

#define GEMM(name) \
    SHOWN int name(void*, int, int, int m, int n, int k) { return call(#name, size(m, n, k)); }
GEMM(cublasSgemm_v2)
GEMM(cublasDgemm_v2)
GEMM(cublasGemmEx)

// The number of products is the only argument that tells them apart.
SHOWN int cublasSgemmBatched(void*, int, int, int m, int n, int k, const void*, const void*, int, const void*, int,
                             const void*, void*, int, int batch) {
    return call("cublasSgemmBatched", size(m, n, k, batch));
}
SHOWN int cublasDgemmBatched(void*, int, int, int m, int n, int k, const void*, const void*, int, const void*, int,
                             const void*, void*, int, int batch) {
    return call("cublasDgemmBatched", size(m, n, k, batch));
}
SHOWN int cublasGemmBatchedEx(void*, int, int, int m, int n, int k, const void*, const void*, int, int, const void*, int,
                              int, const void*, void*, int, int, int batch, int, int) {
    return call("cublasGemmBatchedEx", size(m, n, k, batch));
}
SHOWN int cublasSgemmStridedBatched(void*, int, int, int m, int n, int k, const void*, const void*, int, long long,
                                    const void*, int, long long, const void*, void*, int, long long, int batch) {
    return call("cublasSgemmStridedBatched", size(m, n, k, batch));
}
SHOWN int cublasDgemmStridedBatched(void*, int, int, int m, int n, int k, const void*, const void*, int, long long,
                                    const void*, int, long long, const void*, void*, int, long long, int batch) {
    return call("cublasDgemmStridedBatched", size(m, n, k, batch));
}
SHOWN int cublasGemmStridedBatchedEx(void*, int, int, int m, int n, int k, const void*, const void*, int, int, long long,
                                     const void*, int, int, long long, const void*, void*, int, int, long long,
                                     int batch, int, int) {
    return call("cublasGemmStridedBatchedEx", size(m, n, k, batch));
}

#define PLAIN(name) \
    SHOWN int name() { return call(#name); }
PLAIN(cublasSgeam)
PLAIN(cublasDgeam)
PLAIN(cublasScopy_v2)
PLAIN(cublasSscal_v2)
PLAIN(cublasSgetrfBatched)
PLAIN(cublasDgetrfBatched)
PLAIN(cublasSgetriBatched)
PLAIN(cublasDgetriBatched)
}
