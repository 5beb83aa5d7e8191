// What the stand-in libraries share: the log, the device's memory, the values that copies to the host are answered
// with, and the state of a graph capture.
#pragma once

#include <cstddef>
#include <string>

#define SHOWN __attribute__((visibility("default")))

namespace null_device {

// A fact about the device, by the name that the table of devices has for it.
SHOWN long long fact(const char* name);

// Writes one line: nanoseconds of CLOCK_REALTIME, kind, then the fields, separated by tabs. A gap of two microseconds
// stands on either side of the stamp, because the profiler that it is compared with counts whole microseconds.
SHOWN void log(const char* kind, const std::string& name, const std::string& more = "");

// A call that the stand-ins don't know: logged by name, so that the report can count it.
SHOWN void unknown(const char* name);

// Device memory: address space without pages behind it, until somebody writes to it.
SHOWN void* allocate(size_t bytes);
SHOWN bool release(void* pointer);
SHOWN bool on_device(const void* pointer);
SHOWN size_t in_use();

// Copies `bytes`, unless they are many and the contents can't matter; to the host, what was computed elsewhere if the
// copy has an answer. `how` is the call's name.
SHOWN void copy(const char* kind, void* to, const void* from, size_t bytes, const char* how, const void* stream);
SHOWN void clear(void* pointer, int value, size_t bytes, const char* how);

// Kernels by the pointer that stands for them on the host.
SHOWN void name_kernel(const void* host, const char* mangled);
SHOWN void launch(const void* host, const unsigned grid[3], const unsigned block[3], size_t shared, const void* stream);

// The capture of a graph: one at a time. `forbidden` says whether a call can't be made now, and makes the capture void.
SHOWN void begin_capture(const void* stream);
SHOWN bool end_capture();
SHOWN bool capturing(const void* stream);
SHOWN bool forbidden(const char* call, const void* stream, bool every_stream);

// A handle: never null, never the same.
SHOWN void* handle();

}  // namespace null_device
