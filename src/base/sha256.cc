#include "base/sha256.h"

#include <openssl/evp.h>

namespace drafthouse {
namespace {

EVP_MD_CTX* context_of(void* pointer) { return static_cast<EVP_MD_CTX*>(pointer); }

}  // namespace

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
  EVP_DigestInit_ex(context_of(context_), EVP_sha256(), nullptr);
}

Sha256::~Sha256() { EVP_MD_CTX_free(context_of(context_)); }

void Sha256::add(std::span<const std::byte> bytes) {
  EVP_DigestUpdate(context_of(context_), bytes.data(), bytes.size());
}

Sha256Digest Sha256::finish() {
  Sha256Digest digest{};
  unsigned length = 0;
  EVP_DigestFinal_ex(context_of(context_), digest.data(), &length);
  return digest;
}

}  // namespace drafthouse
