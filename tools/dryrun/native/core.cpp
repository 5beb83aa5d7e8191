#include "core.h"

#include <cxxabi.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace null_device {
namespace {

using Lock = std::lock_guard<std::recursive_mutex>;

constexpr long long GAP_NS = 2000;
constexpr size_t ALIGNMENT = 512;
// Larger copies and fills are weights and activations, whose values nothing on the host reads.
constexpr size_t LARGEST_COPY = 1 << 16;
// Where device memory is asked for, so that addresses are the same in every run.
constexpr unsigned long long BASE = 0x500000000000;

struct Answer {
    const void* data;
    size_t bytes;
};

struct State {
    std::recursive_mutex mutex;
    int file = -1;
    std::map<std::string, long long> facts;
    char* memory = nullptr;
    size_t size = 0, used = 0, peak = 0;
    std::map<size_t, size_t> blocks;  // offset -> bytes
    std::unordered_map<const void*, std::string> kernels;
    std::map<long long, Answer> answers;
    long long copies_to_host = 0, period = 0;
    const void* captured = nullptr;
    bool in_capture = false, valid = false;
    size_t handles = 0;

    State() {
        if (const char* path = std::getenv("MASKPORT_NULL_LOG")) {
            file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        }
        const char* text = std::getenv("MASKPORT_NULL_DEVICE");
        std::string all = text ? text : "";
        for (size_t at = 0; at < all.size();) {
            size_t equals = all.find('=', at), comma = all.find(',', at);
            if (comma == std::string::npos) comma = all.size();
            if (equals < comma) facts[all.substr(at, equals - at)] = std::atoll(all.c_str() + equals + 1);
            at = comma + 1;
        }
        size = static_cast<size_t>(facts["memory"]);
        // Shared, so that a limit on the process's own data doesn't count it.
        void* got = mmap(reinterpret_cast<void*>(BASE), size, PROT_READ | PROT_WRITE,
                         MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (got == MAP_FAILED) size = 0;
        else memory = static_cast<char*>(got);
    }
};

State& state() {
    // Never destroyed: the libraries still call while the process ends.
    static State* only = new State;
    return *only;
}

long long now() {
    timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

void wait_gap() {
    for (long long start = now(); now() - start < GAP_NS;) {
    }
}

std::string three(const unsigned sizes[3]) {
    return std::to_string(sizes[0]) + "x" + std::to_string(sizes[1]) + "x" + std::to_string(sizes[2]);
}

// Streams as numbers in the order of their creation; other values are the default streams.
std::string stream_name(const void* stream) {
    return std::to_string(reinterpret_cast<size_t>(stream) & 0xffff);
}

std::string demangled(const char* mangled) {
    int status = 0;
    char* text = abi::__cxa_demangle(mangled, nullptr, nullptr, &status);
    std::string name = status == 0 && text ? text : mangled;
    std::free(text);
    return name;
}

}  // namespace

long long fact(const char* name) {
    State& s = state();
    Lock lock(s.mutex);
    auto found = s.facts.find(name);
    return found == s.facts.end() ? 0 : found->second;
}

void log(const char* kind, const std::string& name, const std::string& more) {
    State& s = state();
    Lock lock(s.mutex);
    if (s.file < 0) return;
    wait_gap();
    std::string line = std::to_string(now()) + "\t" + kind + "\t" + name;
    if (!more.empty()) line += "\t" + more;
    line += "\n";
    // One write for each line: what was logged survives a crash.
    if (write(s.file, line.data(), line.size()) < 0) _exit(70);
    wait_gap();
}

void unknown(const char* name) { log("unknown", name); }

void* allocate(size_t bytes) {
    State& s = state();
    Lock lock(s.mutex);
    size_t wanted = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT, offset = 0;
    if (wanted == 0) wanted = ALIGNMENT;
    for (auto& [start, length] : s.blocks) {
        if (start - offset >= wanted) break;
        offset = start + length;
    }
    if (offset + wanted > s.size) return nullptr;
    s.blocks[offset] = wanted;
    s.used += wanted;
    if (s.used > s.peak) s.peak = s.used;
    return s.memory + offset;
}

bool release(void* pointer) {
    State& s = state();
    Lock lock(s.mutex);
    auto found = s.blocks.find(static_cast<size_t>(static_cast<char*>(pointer) - s.memory));
    if (found == s.blocks.end()) return false;
    // The next owner finds zeros, as the first did.
    size_t page = 4096, first = (found->first + page - 1) / page * page, end = (found->first + found->second) / page * page;
    if (end > first) madvise(s.memory + first, end - first, MADV_REMOVE);
    s.used -= found->second;
    s.blocks.erase(found);
    return true;
}

bool on_device(const void* pointer) {
    State& s = state();
    const char* at = static_cast<const char*>(pointer);
    return s.memory && at >= s.memory && at < s.memory + s.size;
}

size_t in_use() { return state().used; }

void copy(const char* kind, void* to, const void* from, size_t bytes, const char* how, const void* stream) {
    State& s = state();
    Lock lock(s.mutex);
    std::string place = "-", answered = "no";
    if (!std::strcmp(kind, "d2h")) {
        long long index = s.copies_to_host++;
        if (s.period) index %= s.period;
        place = std::to_string(index);
        auto found = s.answers.find(index);
        if (found != s.answers.end() && found->second.bytes == bytes) {
            from = found->second.data;
            answered = "yes";
        }
    }
    log("copy", kind, std::to_string(bytes) + "\t" + how + "\t" + stream_name(stream) + "\t" + place + "\t" + answered +
                          "\t" + (capturing(stream) ? "captured" : "now"));
    if (bytes <= LARGEST_COPY || answered == "yes") std::memmove(to, from, bytes);
}

void clear(void* pointer, int value, size_t bytes, const char* how) {
    log("memset", how, std::to_string(bytes));
    if (bytes <= LARGEST_COPY) std::memset(pointer, value, bytes);
}

void name_kernel(const void* host, const char* mangled) {
    State& s = state();
    Lock lock(s.mutex);
    s.kernels[host] = mangled;
}

void launch(const void* host, const unsigned grid[3], const unsigned block[3], size_t shared, const void* stream) {
    State& s = state();
    Lock lock(s.mutex);
    auto found = s.kernels.find(host);
    std::string name = found == s.kernels.end() ? "unnamed kernel" : demangled(found->second.c_str());
    log("kernel", name, three(grid) + "\t" + three(block) + "\t" + std::to_string(shared) + "\t" + stream_name(stream) +
                            "\t" + (capturing(stream) ? "captured" : "now"));
}

void begin_capture(const void* stream) {
    State& s = state();
    Lock lock(s.mutex);
    s.captured = stream;
    s.in_capture = s.valid = true;
    log("capture", "begin");
}

bool end_capture() {
    State& s = state();
    Lock lock(s.mutex);
    s.in_capture = false;
    log("capture", s.valid ? "end" : "void");
    return s.valid;
}

bool capturing(const void* stream) {
    State& s = state();
    return s.in_capture && stream == s.captured;
}

bool forbidden(const char* call, const void* stream, bool every_stream) {
    State& s = state();
    Lock lock(s.mutex);
    if (!s.in_capture || !(every_stream || stream == s.captured)) return false;
    s.valid = false;
    log("forbidden", call);
    return true;
}

void* handle() {
    State& s = state();
    Lock lock(s.mutex);
    // Low numbers that no pointer has; the low bits name a stream in the log.
    return reinterpret_cast<void*>(0x10000 + ++s.handles);
}

}  // namespace null_device

// What the process that owns the device calls.
extern "C" {

SHOWN void maskport_mark(const char* name) {
    auto& s = null_device::state();
    null_device::Lock lock(s.mutex);
    s.copies_to_host = 0;
    null_device::log("mark", name, std::to_string(s.used) + "\t" + std::to_string(s.peak));
}

// Answers the `index`-th copy to the host after the last mark; the data must live on.
SHOWN void maskport_answer(long long index, const void* data, size_t bytes) {
    auto& s = null_device::state();
    null_device::Lock lock(s.mutex);
    s.answers[index] = {data, bytes};
}

// A run of a graph's session is several: count the copies anew after so many.
SHOWN void maskport_period(long long copies) { null_device::state().period = copies; }

SHOWN size_t maskport_memory() { return null_device::state().size; }
}
