// Messages between the processes of one machine, through memory that they share.
//
// Every ordered pair of processes has a ring of bytes with one writer and one reader. An exchange
// moves all its messages at once, in whatever pieces the rings have room for, so it cannot block on
// a full ring. Waiting is a spin for a while: a wake-up by the kernel takes longer than most waits.
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>
#include <vector>

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "kernels.h"

namespace grendel {
namespace {

constexpr size_t kCapacity = size_t(1) << 20;
constexpr int kSpins = 2000, kYields = 2000, kPauses = 64;
constexpr long kSleepNs = 50'000;

struct Ring {
    alignas(64) std::atomic<uint64_t> written;
    alignas(64) std::atomic<uint64_t> taken;
    alignas(64) uint8_t bytes[kCapacity];

    // Both give the number of bytes that were moved, perhaps 0.
    size_t put(const uint8_t* from, size_t size) {
        uint64_t at = written.load(std::memory_order_relaxed);
        size = std::min<uint64_t>(size, kCapacity - (at - taken.load(std::memory_order_acquire)));
        size_t first = std::min(size, kCapacity - at % kCapacity);
        std::memcpy(bytes + at % kCapacity, from, first);
        std::memcpy(bytes, from + first, size - first);
        written.store(at + size, std::memory_order_release);
        return size;
    }

    size_t take(uint8_t* to, size_t size) {
        uint64_t at = taken.load(std::memory_order_relaxed);
        size = std::min<uint64_t>(size, written.load(std::memory_order_acquire) - at);
        size_t first = std::min(size, kCapacity - at % kCapacity);
        std::memcpy(to, bytes + at % kCapacity, first);
        std::memcpy(to + first, bytes, size - first);
        taken.store(at + size, std::memory_order_release);
        return size;
    }
};

inline void pause_core() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

// Gets slower the longer nothing happens.
struct Patience {
    int rounds = 0;

    void wait() {
        if (rounds < kSpins) {
            for (int i = 0; i < kPauses; i++) pause_core();
        } else if (rounds < kSpins + kYields) {
            sched_yield();
        } else {
            timespec pause{0, kSleepNs};
            nanosleep(&pause, nullptr);
        }
        rounds++;
    }
};

double now() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return double(t.tv_sec) + 1e-9 * double(t.tv_nsec);
}

using Bytes = Array1<uint8_t>;

class Mailbox {
   public:
    // `path` is a file that all processes see; the first one must have made it with `bytes(size)`.
    Mailbox(const std::string& path, int place, int size) : place_(place), size_(size) {
        int file = open(path.c_str(), O_RDWR);
        if (file < 0) throw std::runtime_error(path + ": cannot open the shared memory");
        void* memory = mmap(nullptr, bytes(size), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        close(file);
        if (memory == MAP_FAILED) throw std::runtime_error(path + ": cannot map the shared memory");
        rings_ = static_cast<Ring*>(memory);
    }

    ~Mailbox() { munmap(rings_, bytes(size_)); }

    static size_t bytes(int size) { return sizeof(Ring) * size_t(size) * size_t(size); }

    // One message to and one from each process, by its place; its own are left alone. -1 when all
    // are through, else the place of one that did nothing for `timeout` seconds.
    int exchange(std::vector<Bytes> outgoing, std::vector<Bytes> incoming, double timeout) {
        nb::gil_scoped_release release;
        std::vector<size_t> sent(size_), got(size_);
        Patience patience;
        double deadline = 0;
        while (true) {
            bool moved = false;
            int open = -1;
            for (int peer = 0; peer < size_; peer++) {
                if (peer == place_) continue;
                size_t to_send = outgoing[peer].size() - sent[peer], to_get = incoming[peer].size() - got[peer];
                if (!to_send && !to_get) continue;
                size_t put = ring(place_, peer).put(outgoing[peer].data() + sent[peer], to_send);
                size_t taken = ring(peer, place_).take(incoming[peer].data() + got[peer], to_get);
                sent[peer] += put, got[peer] += taken;
                moved |= put || taken;
                if (put < to_send || taken < to_get) open = peer;
            }
            if (open < 0) return -1;
            if (moved) {
                patience = {};
                deadline = 0;
                continue;
            }
            patience.wait();
            if (patience.rounds % 256 == 0) {
                double time = now();
                if (!deadline) deadline = time + timeout;
                if (time > deadline) return open;
            }
        }
    }

   private:
    Ring& ring(int from, int to) { return rings_[from * size_ + to]; }

    int place_, size_;
    Ring* rings_;
};

}  // namespace

void register_mailbox(nb::module_& m) {
    nb::class_<Mailbox>(m, "Mailbox")
        .def(nb::init<const std::string&, int, int>(), nb::arg("path"), nb::arg("place"), nb::arg("size"))
        .def_static("bytes", &Mailbox::bytes, nb::arg("size"))
        .def("exchange", &Mailbox::exchange, nb::arg("outgoing"), nb::arg("incoming"), nb::arg("timeout"));
}

}  // namespace grendel
