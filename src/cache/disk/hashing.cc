#define XXH_INLINE_ALL
#include "cache/disk/hashing.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <openssl/sha.h>
#include <xxhash.h>

#include <algorithm>
#include <vector>

namespace drafthouse {
namespace {

using Sha256 = std::array<std::uint8_t, SHA256_DIGEST_LENGTH>;

Sha256 sha256(std::span<const std::byte> bytes) {
  Sha256 digest;
  SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), digest.data());
  return digest;
}

template <std::size_t kSize>
HexName<kSize> leading(const Sha256& digest) {
  HexName<kSize> name;
  std::copy_n(digest.begin(), kSize, name.bytes.begin());
  return name;
}

}  // namespace

std::uint64_t checksum(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

PageAddress page_address(const PageAddress& before, std::span<const std::uint32_t> tokens) {
  std::vector<std::byte> text(sizeof before + tokens.size_bytes());
  std::memcpy(text.data(), before.bytes.data(), sizeof before);
  std::memcpy(text.data() + sizeof before, tokens.data(), tokens.size_bytes());
  return leading<32>(sha256(text));
}

RunId run_id(std::span<const std::byte> bytes) { return leading<16>(sha256(bytes)); }

RootName root_name(std::span<const std::byte> key, std::string_view salt) {
  Sha256 digest;
  unsigned int size = digest.size();
  HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
       reinterpret_cast<const unsigned char*>(salt.data()), salt.size(), digest.data(), &size);
  return leading<16>(digest);
}

bool random_bytes(std::span<std::byte> into) {
  return RAND_bytes(reinterpret_cast<unsigned char*>(into.data()), static_cast<int>(into.size())) ==
         1;
}

}  // namespace drafthouse
