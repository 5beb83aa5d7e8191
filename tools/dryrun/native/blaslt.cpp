// Stands in for libcublasLt.
#include <cstdint>
#include <cstring>
#include <string>

#include "core.h"

using namespace null_device;

namespace {

struct Layout {
    uint64_t rows, columns;
};

// cublasLtMatmulHeuristicResult_t: its algorithm is opaque.
struct Heuristic {
    uint64_t algorithm[8];
    size_t workspace;
    int status;
    float waves;
    int reserved[4];
};
static_assert(sizeof(Heuristic) == 96);

int create(void** to) {
    *to = handle();
    return 0;
}

}  // namespace

extern "C" {

SHOWN int cublasLtCreate(void** to) { return create(to); }
SHOWN int cublasLtDestroy(void*) { return 0; }
SHOWN int cublasLtMatmulDescCreate(void** to, int, int) { return create(to); }
SHOWN int cublasLtMatmulDescDestroy(void*) { return 0; }
SHOWN int cublasLtMatmulDescSetAttribute(void*, int, const void*, size_t) { return 0; }
SHOWN int cublasLtMatmulPreferenceCreate(void** to) { return create(to); }
SHOWN int cublasLtMatmulPreferenceDestroy(void*) { return 0; }
SHOWN int cublasLtMatmulPreferenceSetAttribute(void*, int, const void*, size_t) { return 0; }
SHOWN int cublasLtMatrixTransformDescCreate(void** to, int) { return create(to); }
SHOWN int cublasLtMatrixTransformDescDestroy(void*) { return 0; }
SHOWN int cublasLtMatrixLayoutCreate(void** to, int, uint64_t rows, uint64_t columns, int64_t) {
    *to = new Layout{rows, columns};
    return 0;
}
SHOWN int cublasLtMatrixLayoutDestroy(void* layout) {
    delete static_cast<Layout*>(layout);
    return 0;
}
SHOWN int cublasLtMatrixLayoutSetAttribute(void*, int, const void*, size_t) { return 0; }
SHOWN int cublasLtMatmulAlgoInit(void*, int, int, int, int, int, int, int, void* algorithm) {
    std::memset(algorithm, 0, sizeof Heuristic::algorithm);
    return 0;
}
SHOWN int cublasLtMatmulAlgoConfigSetAttribute(void*, int, const void*, size_t) { return 0; }
SHOWN int cublasLtMatmulAlgoGetHeuristic(void*, void*, void*, void*, void*, void*, void*, int wanted,
                                         Heuristic results[], int* found) {
    *found = wanted > 0 ? 1 : 0;
    if (*found) results[0] = {};
    return 0;
}
SHOWN int cublasLtMatmul(void*, void*, const void*, const void*, const Layout*, const void*, const Layout*, const void*,
                         const void*, const void*, void*, const Layout* result) {
    log("library", "cublasLtMatmul", result ? std::to_string(result->rows) + "x" + std::to_string(result->columns) : "");
    return 0;
}
SHOWN int cublasLtMatrixTransform() {
    log("library", "cublasLtMatrixTransform");
    return 0;
}
}
