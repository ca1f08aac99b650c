// Weights that a package holds as they were trained, and that its library transforms when it is loaded.
#pragma once

#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/module.h>

#include <functional>
#include <vector>

#include "files.h"

namespace agent {

using Allocate = std::function<tvm::ffi::Tensor(const TensorSpec&)>;

// What every entry of a library takes after its inputs: what its function `transform_weights` makes of the weights that
// the manifest lists, on all threads. These are freed again. Failure(kPackage) if they cannot be read, or if the
// function is not there or gives something else than tensors; what TVM throws passes.
std::vector<tvm::ffi::Tensor> TransformedWeights(const Package& package, const tvm::ffi::Module& machine,
                                                 const Allocate& allocate);

}  // namespace agent
