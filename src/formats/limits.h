#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/head_dim.h"

namespace drafthouse::limits {

// Files, before anything of them is believed.
inline constexpr std::uint64_t kSafetensorsHeaderBytesMax = 100'000'000;  // the format's own limit
inline constexpr std::uint64_t kGgufHeaderBytesMax = 128u << 20;
inline constexpr std::uint64_t kConfigBytesMax = 4u << 20;
inline constexpr std::uint64_t kIndexBytesMax = 32u << 20;
inline constexpr std::uint64_t kTextBytesMax = 64u << 20;  // tokenizer files and templates
inline constexpr std::size_t kShardsMax = 4096;
inline constexpr std::size_t kFolderEntriesMax = 100'000;

// Tensors. The largest mixtures of experts have about 150,000.
inline constexpr std::size_t kTensorsMax = 1u << 18;
inline constexpr std::size_t kTensorNameBytesMax = 512;
inline constexpr std::size_t kDimsMax = 8;
inline constexpr std::uint32_t kGgufDimsMax = 4;

// JSON documents: nodes bound the memory of a parsed document, depth the stack of its destructor.
inline constexpr std::size_t kJsonDepthMax = 64;
inline constexpr std::size_t kJsonNodesMax = 1u << 21;

// GGUF metadata.
inline constexpr std::uint64_t kGgufKeysMax = 1u << 16;
inline constexpr std::uint64_t kGgufKeyBytesMax = 1024;
inline constexpr std::uint64_t kGgufStringBytesMax = 16u << 20;
inline constexpr std::uint64_t kGgufElementsMax = 1u << 23;  // of all arrays of a file
inline constexpr std::uint32_t kGgufArrayDepthMax = 4;
inline constexpr std::uint64_t kGgufAlignmentMax = 1u << 20;

// Hyperparameters.
inline constexpr std::uint32_t kHiddenMax = 65'536;
inline constexpr std::uint32_t kIntermediateMax = 1u << 20;
inline constexpr std::uint32_t kLayersMax = 1024;
inline constexpr std::uint32_t kHeadsMax = 1024;
inline constexpr std::uint32_t kExpertsMax = 4096;
inline constexpr std::uint32_t kHeadDimMax = drafthouse::kHeadDimMax;
inline constexpr std::uint32_t kVocabMax = 1u << 24;
inline constexpr std::uint32_t kPositionsMax = 1u << 28;
inline constexpr std::uint32_t kBlockMax = 256;
inline constexpr std::size_t kTapsMax = 64;
inline constexpr std::uint32_t kConvKernelMax = 16;  // rows of a DFlash2 draft's convolutions
inline constexpr std::uint32_t kSelectorMax = 64;    // candidates of its selector
inline constexpr std::size_t kStopIdsMax = 256;

}  // namespace drafthouse::limits
