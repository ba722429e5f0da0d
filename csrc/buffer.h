// A growable array of raw memory, aligned to cache lines, whose contents do not survive growth.
#pragma once

#include <cstdlib>
#include <cstddef>
#include <new>

namespace grendel {

template <typename T>
class Buffer {
public:
    Buffer() = default;
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    ~Buffer() { std::free(data_); }

    T* ensure(size_t n) {
        if (n > capacity_) {
            std::free(data_);
            capacity_ = n + n / 4 + 64;
            data_ = static_cast<T*>(std::aligned_alloc(64, (capacity_ * sizeof(T) + 63) / 64 * 64));
            if (!data_) { capacity_ = 0; throw std::bad_alloc(); }
        }
        return data_;
    }
    T* data() { return data_; }
    T& operator[](size_t i) { return data_[i]; }
    size_t bytes() const { return capacity_ * sizeof(T); }

private:
    T* data_ = nullptr;
    size_t capacity_ = 0;
};

}  // namespace grendel
