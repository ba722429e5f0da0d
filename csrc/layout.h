// The layouts that Python declares (model/table.py, render/protocol.py), and the mixing of ids.
#pragma once

#include <cstdint>

namespace grendel {

constexpr int kRowWidth = 64;    // floats of a primitive row
constexpr int kSplatWidth = 10;  // floats of a splat row
constexpr int kTile = 16;        // pixels

// Columns of a primitive row.
enum RowColumn { kMeans = 0, kScales = 3, kQuats = 6, kOpacity = 10, kSh0 = 11, kShN = 16 };

// The finaliser of splitmix64 (model/ids.py).
inline uint64_t mix64(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

}  // namespace grendel
