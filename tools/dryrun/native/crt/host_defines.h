// What cuda_runtime_api.h expects of crt/host_defines.h, which comes in another package than the other headers.
#pragma once

#define __host__
#define __device__
#define __global__
#define __shared__
#define __constant__
#define __managed__
#define __grid_constant__
#define __cluster_dims__(...)
#define __device_builtin__
#define __device_builtin_texture_type__
#define __device_builtin_surface_type__
#define __cudart_builtin__
#define __align__(n) __attribute__((aligned(n)))
#define __builtin_align__(n) __align__(n)
#define __location__(a)
#define __specialization_static
#define __forceinline__ inline
#define CUDARTAPI
#define CUDARTAPI_CDECL
#define CUDART_CB
