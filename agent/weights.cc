#include "weights.h"

#include <tvm/ffi/container/array.h>
#include <tvm/ffi/function.h>

#include "failure.h"

namespace agent {
namespace {

namespace ffi = tvm::ffi;

constexpr const char* kTransform = "transform_weights";

}  // namespace

std::vector<ffi::Tensor> TransformedWeights(const Package& package, const ffi::Module& machine,
                                            const Allocate& allocate) {
  std::vector<ffi::Tensor> transformed;
  const std::vector<TensorSpec>& specs = package.manifest().transformed;
  if (specs.empty()) return transformed;
  const auto transform = machine->GetFunction(kTransform);
  if (!transform) throw Failure(Code::kPackage, "the network has no function that transforms its weights");

  std::vector<ffi::Tensor> plain;
  for (const TensorSpec& spec : specs) {
    plain.push_back(allocate(spec));
    package.Read(spec.name, plain.back().data_ptr(), spec.bytes);
  }
  const std::vector<ffi::AnyView> arguments(plain.begin(), plain.end());
  ffi::Any returned;
  (*transform).CallPacked(arguments.data(), static_cast<int32_t>(arguments.size()), &returned);
  const auto all = returned.as<ffi::Array<ffi::Any>>();
  if (!all) throw Failure(Code::kPackage, "the network transforms its weights into something else than tensors");
  for (const ffi::Any& each : *all) {
    const auto tensor = each.as<ffi::Tensor>();
    if (!tensor) throw Failure(Code::kPackage, "the network transforms its weights into something else than tensors");
    transformed.push_back(*tensor);
  }
  return transformed;
}

}  // namespace agent
