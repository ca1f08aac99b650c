#include "model.h"

#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/shape.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>

#include "failure.h"
#include "machine.h"
#include "subnormals.h"

namespace agent {
namespace {

namespace ffi = tvm::ffi;

// The library's function that starts its threads (edgedeploy/runtime/native/thread_pool.c).
constexpr const char* kSetThreads = "edgedeploy_set_threads";
// `vm_initialization`'s allocator that keeps memory for the next inference.
constexpr int kPooled = 2;

constexpr DLDevice kCpu{kDLCPU, 0};

DLDataType DlpackType(const ElementType& type) {
  const DLDataTypeCode code = type.kind == 'f'   ? kDLFloat
                              : type.kind == 'i' ? kDLInt
                              : type.kind == 'u' ? kDLUInt
                                                 : kDLBool;
  return {static_cast<uint8_t>(code), static_cast<uint8_t>(type.bytes * 8), 1};
}

// The last line of what TVM says: it puts the cause there, below its own trace.
std::string LastLine(const std::string& text) {
  const size_t end = text.find_last_not_of(" \n");
  if (end == std::string::npos) return "no reason was given";
  const size_t begin = text.rfind('\n', end);
  return text.substr(begin == std::string::npos ? 0 : begin + 1, end - (begin == std::string::npos ? 0 : begin + 1) + 1);
}

void RefuseOtherMachines(const Manifest& manifest) {
  const std::string why = "the package was built for board '" + manifest.board + "'";
  if (manifest.machine != OwnElfMachine()) {
    throw Failure(Code::kPackage, "the network's code is " + manifest.machine + ", this is " + OwnElfMachine(), why);
  }
  if (!manifest.glibc.empty() && !VersionIsAtLeast(GlibcVersion(), manifest.glibc)) {
    throw Failure(Code::kPackage,
                  "the network's code needs glibc " + manifest.glibc + ", this machine has " + GlibcVersion(), why);
  }
}

bool Fits(const ffi::Tensor& tensor, const TensorSpec& spec) {
  const DLDataType wanted = DlpackType(spec.type);
  const DLDataType found = tensor.dtype();
  return found.code == wanted.code && found.bits == wanted.bits && found.lanes == 1 && tensor.IsContiguous() &&
         std::equal(tensor.shape().begin(), tensor.shape().end(), spec.shape.begin(), spec.shape.end());
}

}  // namespace

struct Model::Loaded {
  std::vector<TensorSpec> inputs;
  std::vector<TensorSpec> outputs;
  std::optional<ffi::Module> library;  // before what comes from it: members go in reverse order
  std::optional<ffi::Module> machine;
  ffi::Function main{nullptr};
  std::vector<ffi::Tensor> input_tensors;
  std::vector<ffi::AnyView> arguments;
  ffi::Any returned;
  std::vector<ffi::Tensor> output_tensors;

  // A virtual machine, which shares the library's weights with others.
  ffi::Module NewMachine() const {
    auto made = (*library)->GetFunction("vm_load_executable", true).value()().cast<ffi::Module>();
    made->GetFunction("vm_initialization").value()(static_cast<int>(kDLCPU), 0, kPooled);
    return made;
  }

  void Call() { Call(main); }
  void Call(const ffi::Function& function) {
    returned = nullptr;  // its memory may serve this inference
    try {
      function.CallPacked(arguments.data(), static_cast<int32_t>(arguments.size()), &returned);
    } catch (const std::exception& error) {
      throw Failure(Code::kOther, "the inference failed", LastLine(error.what()));
    }
  }
};

Model::Model(const Package& package, int threads) : loaded_(std::make_unique<Loaded>()) {
  const Manifest& manifest = package.manifest();
  RefuseOtherMachines(manifest);
  loaded_->inputs = manifest.inputs;
  loaded_->outputs = manifest.outputs;
  FlushSubnormals();  // the library's threads calculate as the one that calls
  try {
    loaded_->library = ffi::Module::LoadFromFile(package.LibraryPath());
    (*loaded_->library)->GetFunction(kSetThreads, true).value()(threads);
    loaded_->machine = loaded_->NewMachine();
    loaded_->main = (*loaded_->machine)->GetFunction("main").value();
    const ffi::Function allocate = ffi::Function::GetGlobalRequired("runtime.TVMTensorAllocWithScope");
    for (const TensorSpec& spec : manifest.inputs) {
      auto tensor = allocate(ffi::Shape(spec.shape), DlpackType(spec.type), kCpu, nullptr).cast<ffi::Tensor>();
      if (spec.bytes > 0) std::memset(tensor.data_ptr(), 0, spec.bytes);
      loaded_->input_tensors.push_back(std::move(tensor));
    }
  } catch (const Failure&) {
    throw;
  } catch (const std::exception& error) {
    throw Failure(Code::kPackage, "the network cannot be loaded", LastLine(error.what()));
  }
  loaded_->arguments.assign(loaded_->input_tensors.begin(), loaded_->input_tensors.end());
}

Model::~Model() = default;

const std::vector<TensorSpec>& Model::inputs() const { return loaded_->inputs; }
const std::vector<TensorSpec>& Model::outputs() const { return loaded_->outputs; }

void* Model::Input(size_t index) { return loaded_->input_tensors[index].data_ptr(); }

void Model::SetRecordedInputs(const Package& package) {
  const std::vector<std::string>& names = package.manifest().selftest.inputs;
  for (size_t i = 0; i < names.size(); ++i) package.Read(names[i], Input(i), inputs()[i].bytes);
}

void Model::Run() {
  loaded_->output_tensors.clear();
  loaded_->Call();
  if (auto one = loaded_->returned.as<ffi::Tensor>()) {
    loaded_->output_tensors.push_back(*one);
  } else if (auto several = loaded_->returned.as<ffi::Array<ffi::Any>>()) {
    for (const ffi::Any& each : *several) {
      if (auto tensor = each.as<ffi::Tensor>()) loaded_->output_tensors.push_back(*tensor);
    }
  }
  bool fits = loaded_->output_tensors.size() == outputs().size();
  for (size_t i = 0; fits && i < outputs().size(); ++i) fits = Fits(loaded_->output_tensors[i], outputs()[i]);
  if (!fits) throw Failure(Code::kPackage, "the network's outputs are not those that its manifest describes");
}

double Model::TimedRun() {
  loaded_->output_tensors.clear();
  const auto begin = std::chrono::steady_clock::now();
  loaded_->Call();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

std::map<std::string, std::vector<double>> Model::FunctionTimes(int repeat, int warmup) {
  using Clock = std::chrono::steady_clock;
  std::map<std::string, double> sums;
  Clock::time_point begin;
  const auto watch = [&](const ffi::AnyView* arguments, int32_t, ffi::Any*) {
    // A function, its name, whether it is about to be called, what it returned, and its arguments.
    if (arguments[2].cast<bool>()) {
      begin = Clock::now();
    } else {
      const double ms = std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
      sums[arguments[1].cast<std::string>()] += ms;
    }
  };
  // On a machine of its own: nothing takes an instrument off again.
  const ffi::Module machine = loaded_->NewMachine();
  machine->GetFunction("set_instrument").value()(ffi::Function::FromPacked(watch));
  const ffi::Function main = machine->GetFunction("main").value();
  loaded_->output_tensors.clear();
  for (int i = 0; i < warmup; ++i) loaded_->Call(main);
  std::map<std::string, std::vector<double>> times_ms;
  for (int i = 0; i < repeat; ++i) {
    sums.clear();
    loaded_->Call(main);
    for (const auto& [name, ms] : sums) times_ms[name].push_back(ms);
  }
  loaded_->returned = nullptr;  // the machine's memory goes with it
  return times_ms;
}

const void* Model::Output(size_t index) const {
  const ffi::Tensor& tensor = loaded_->output_tensors[index];
  return static_cast<const char*>(tensor.data_ptr()) + tensor.byte_offset();
}

std::vector<double> Measure(Model* model, int repeat, int number, int warmup) {
  for (int i = 0; i < warmup; ++i) model->TimedRun();
  std::vector<double> runs_ms;
  for (int i = 0; i < repeat; ++i) {
    double total = 0;
    for (int n = 0; n < number; ++n) total += model->TimedRun();
    runs_ms.push_back(total / number);
  }
  return runs_ms;
}

}  // namespace agent
