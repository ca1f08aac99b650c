#include "model.h"

#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/shape.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <exception>
#include <numeric>
#include <optional>

#include "device.h"
#include "failure.h"
#include "machine.h"
#include "shared_library.h"
#include "subnormals.h"

namespace agent {
namespace {

namespace ffi = tvm::ffi;

// `vm_initialization`'s allocator that keeps memory for the next inference.
constexpr int kPooled = 2;
// The library's function that transforms weights (edgedeploy/package/manifest.py).
constexpr const char* kTransform = "transform_weights";
// What the runtime for OpenCL sums the times of kernels with (opencl/timer.cc).
constexpr const char* kKernelNanoseconds = "edgedeploy.opencl.kernel_nanoseconds";

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
  const size_t begin = text.rfind('\n', end) + 1;  // 0 if there is one line
  return text.substr(begin, end + 1 - begin);
}

// What the runtime for OpenCL says begins so in its errors' kinds (opencl/api.h).
constexpr const char* kDeviceErrors = "OpenCL";
// The kind of what a network's guards say of its inputs (edgedeploy/compile/native/guards.c).
constexpr const char* kInputError = "InputError";

// What TVM threw, as a failure: of the device if that is at fault, with its kind and the whole of its compiler's log.
[[noreturn]] void Rethrow(const std::exception& error, Code code, const std::string& what) {
  const auto* known = dynamic_cast<const ffi::Error*>(&error);
  if (known && known->kind().rfind(kDeviceErrors, 0) == 0) {
    throw Failure(Code::kDevice, what, std::string(known->kind()) + ": " + std::string(known->message()));
  }
  if (known && known->kind() == kInputError) throw Failure(Code::kInput, what, std::string(known->message()));
  // What TVM's code checks of an inference's arguments, which are as the manifest describes.
  if (code == Code::kOther && known && (known->kind() == "ValueError" || known->kind() == "TypeError")) {
    throw Failure(Code::kPackage, "the network takes other inputs than its manifest describes", LastLine(error.what()));
  }
  throw Failure(code, what, LastLine(error.what()));
}

void RefuseOtherMachines(const Manifest& manifest) {
  const std::string why = "the package was built for board '" + manifest.board + "'";
  const Abi& abi = manifest.abi;
  if (abi.machine != OwnElfMachine()) {
    throw Failure(Code::kPackage, "the network's code is " + abi.machine + ", this is " + OwnElfMachine(), why);
  }
  if (abi.glibc && !VersionIsAtLeast(GlibcVersion(), *abi.glibc)) {
    throw Failure(Code::kPackage,
                  "the network's code needs glibc " + *abi.glibc + ", this machine has " + GlibcVersion(), why);
  }
}

// One tensor or several. Failure(kPackage) with a message for anything else.
std::vector<ffi::Tensor> TensorsOf(const ffi::Any& value, const std::string& otherwise) {
  if (const auto one = value.as<ffi::Tensor>()) return {*one};
  const auto several = value.as<ffi::Array<ffi::Tensor>>();
  if (!several) throw Failure(Code::kPackage, otherwise);
  return {several->begin(), several->end()};
}

// Failure(kPackage) unless a tensor has the shape and the type that the manifest states.
void RequireFit(const ffi::Tensor& tensor, const TensorSpec& spec) {
  const DLDataType wanted = DlpackType(spec.type);
  const DLDataType found = tensor.dtype();
  const bool typed = found.code == wanted.code && found.bits == wanted.bits && found.lanes == 1;
  const ffi::ShapeView shape = tensor.shape();
  if (typed && tensor.IsContiguous() && std::equal(shape.begin(), shape.end(), spec.shape.begin(), spec.shape.end())) {
    return;
  }
  throw Failure(Code::kPackage, "the network gives another output '" + spec.name + "' than its manifest describes",
                "it is " + Shown({shape.begin(), shape.end()}) + " of " + std::string(ffi::DLDataTypeToString(found)) +
                    ", not " + Shown(spec.shape) + " of " + spec.type.name);
}

}  // namespace

struct Model::Loaded {
  const Entry* entry;
  std::shared_ptr<SharedLibrary> library;  // before what comes from it: members go in reverse order
  std::optional<ffi::Module> machine;
  ffi::Function main{nullptr};
  DLDevice device = kCpu;
  std::vector<ffi::Tensor> input_tensors;  // in the processor's memory, as `output_tensors`
  std::vector<ffi::Tensor> device_inputs;  // the same on the device; the same tensors if that is the processor
  std::vector<ffi::Tensor> weights;        // transformed ones, which the network takes after its inputs
  std::vector<ffi::AnyView> arguments;
  std::vector<bool> bound;  // inputs that lie in the caller's memory
  ffi::Any returned;
  std::vector<ffi::Tensor> output_tensors;

  ffi::Function allocate = ffi::Function::GetGlobalRequired("runtime.TVMTensorAllocWithScope");
  ffi::Function copy = ffi::Function::GetGlobalRequired("runtime.TVMTensorCopyFromTo");
  ffi::Function wait = ffi::Function::GetGlobalRequired("runtime.Device_StreamSync");

  bool on_cpu() const { return device.device_type == kDLCPU; }

  void Upload() {
    if (on_cpu()) return;
    Guarded([&] {
      for (size_t i = 0; i < input_tensors.size(); ++i) copy(input_tensors[i], device_inputs[i]);
    });
  }
  // A tensor of the device's in the processor's memory.
  ffi::Tensor Downloaded(const ffi::Tensor& tensor) {
    if (on_cpu()) return tensor;
    ffi::Tensor here = allocate(ffi::Shape(tensor.shape()), tensor.dtype(), kCpu, nullptr).cast<ffi::Tensor>();
    Guarded([&] { copy(tensor, here); });
    return here;
  }

  // A virtual machine, which shares the library's weights with others.
  ffi::Module NewMachine() const {
    auto made = library->module()->GetFunction("vm_load_executable", true).value()().cast<ffi::Module>();
    const ffi::Function initialise = made->GetFunction("vm_initialization").value();
    if (on_cpu()) {
      initialise(static_cast<int>(kDLCPU), 0, kPooled);
    } else {
      // Shapes are computed by the processor.
      initialise(static_cast<int>(device.device_type), device.device_id, kPooled, static_cast<int>(kDLCPU), 0, kPooled);
    }
    return made;
  }

  // Has the library transform the weights that the manifest lists, on all threads: they follow each entry's inputs.
  // Failure(kPackage) if they cannot be read, or if its function is not there or gives no tensors.
  void TransformWeights(const Package& package) {
    const std::vector<TensorSpec>& specs = package.manifest().transformed;
    if (specs.empty()) return;
    const auto transform = (*machine)->GetFunction(kTransform);
    if (!transform) throw Failure(Code::kPackage, "the network has no function that transforms its weights");
    std::vector<ffi::Tensor> plain;
    for (const TensorSpec& spec : specs) {
      plain.push_back(Allocated(spec, kCpu));
      package.Read(spec.name, plain.back().data_ptr(), spec.bytes);
    }
    const std::vector<ffi::AnyView> given(plain.begin(), plain.end());
    ffi::Any transformed;
    (*transform).CallPacked(given.data(), static_cast<int32_t>(given.size()), &transformed);
    weights = TensorsOf(transformed, "the network transforms its weights into something else than tensors");
  }

  // Prepares an entry of the manifest: its function, and inputs of zeros.
  void Prepare(const Entry& prepared) {
    entry = &prepared;
    try {
      main = (*machine)->GetFunction(entry->function).value();
      for (const TensorSpec& spec : entry->inputs) {
        input_tensors.push_back(Zeros(spec));
        device_inputs.push_back(on_cpu() ? input_tensors.back() : Allocated(spec, device));
      }
    } catch (const std::exception& error) {
      Rethrow(error, Code::kPackage, "the network cannot be loaded");
    }
    arguments.assign(device_inputs.begin(), device_inputs.end());
    arguments.insert(arguments.end(), weights.begin(), weights.end());
    bound.resize(input_tensors.size());
  }
  ffi::Tensor Allocated(const TensorSpec& spec, DLDevice where) const {
    return allocate(ffi::Shape(spec.shape), DlpackType(spec.type), where, nullptr).cast<ffi::Tensor>();
  }
  ffi::Tensor Zeros(const TensorSpec& spec) const {
    ffi::Tensor tensor = Allocated(spec, kCpu);
    if (spec.bytes > 0) std::memset(tensor.data_ptr(), 0, spec.bytes);
    return tensor;
  }

  void Call() { Call(main); }
  void Call(const ffi::Function& function) {
    const auto use = library->Use();
    returned = nullptr;  // its memory may serve this inference
    Guarded([&] {
      function.CallPacked(arguments.data(), static_cast<int32_t>(arguments.size()), &returned);
      Wait();
    });
  }
  // Until the device has done what it was given.
  void Wait() {
    if (!on_cpu()) wait(device, int64_t{0});
  }

  template <typename Work>
  static void Guarded(const Work& work) {
    try {
      work();
    } catch (const std::exception& error) {
      Rethrow(error, Code::kOther, "the inference failed");
    }
  }
};

Model::Model(const Package& package, int threads) : entries_(package.manifest().entries), all_(entries_.size()) {
  const Manifest& manifest = package.manifest();
  RefuseOtherMachines(manifest);
  FlushSubnormals();  // the library's threads calculate as the one that calls
  all_.front() = std::make_unique<Loaded>();
  loaded_ = all_.front().get();
  loaded_->device = FindDevice(manifest.opencl_device);
  try {
    loaded_->library = SharedLibrary::Load(package.LibraryPath());
    loaded_->library->SetThreads(threads);
    loaded_->machine = loaded_->NewMachine();
    loaded_->TransformWeights(package);
  } catch (const Failure&) {
    throw;
  } catch (const std::exception& error) {
    Rethrow(error, Code::kPackage, "the network cannot be loaded");
  }
  loaded_->Prepare(entries_.front());
}

Model::~Model() = default;

void Model::Enter(size_t entry) {
  if (!all_[entry]) {
    auto made = std::make_unique<Loaded>();
    made->device = loaded_->device;
    made->library = loaded_->library;
    made->machine = loaded_->machine;
    made->weights = loaded_->weights;
    made->Prepare(entries_[entry]);
    all_[entry] = std::move(made);
  }
  loaded_ = all_[entry].get();
}

const std::vector<TensorSpec>& Model::inputs() const { return loaded_->entry->inputs; }
const std::vector<TensorSpec>& Model::outputs() const { return loaded_->entry->outputs; }

std::optional<std::string> Model::Device() const {
  if (loaded_->on_cpu()) return std::nullopt;
  return DeviceName(loaded_->device);
}

void* Model::Input(size_t index) { return loaded_->input_tensors[index].data_ptr(); }

void Model::Bind(size_t index, void* memory) {
  // Memory of the caller's as a tensor of TVM's, which frees nothing of it.
  struct Borrowed {
    void* memory;
    void AllocData(DLTensor* tensor) const { tensor->data = memory; }
    void FreeData(DLTensor*) const {}
  };
  const TensorSpec& spec = inputs()[index];
  ffi::Tensor& tensor = loaded_->input_tensors[index];
  tensor = memory ? ffi::Tensor::FromNDAlloc(Borrowed{memory}, ffi::Shape(spec.shape), DlpackType(spec.type), kCpu)
                  : loaded_->Zeros(spec);
  loaded_->bound[index] = memory != nullptr;
  if (!loaded_->on_cpu()) return;  // it is copied to the device's own
  loaded_->device_inputs[index] = tensor;
  loaded_->arguments[index] = loaded_->device_inputs[index];
}

bool Model::IsBound(size_t index) const { return loaded_->bound[index]; }

int Model::threads() const { return loaded_->library->threads(); }
void Model::SetThreads(int threads) {
  Loaded::Guarded([&] { loaded_->library->SetThreads(threads); });
}

void Model::SetRecordedInputs(const Package& package, const Case& recorded) {
  for (size_t i = 0; i < inputs().size(); ++i) package.Read(recorded.inputs[i], Input(i), inputs()[i].bytes);
}

void Model::Run() {
  loaded_->output_tensors.clear();
  loaded_->Upload();
  loaded_->Call();
  for (const ffi::Tensor& each : TensorsOf(loaded_->returned, "the network gives something else than tensors")) {
    loaded_->output_tensors.push_back(loaded_->Downloaded(each));
  }
  const size_t found = loaded_->output_tensors.size();
  if (found != outputs().size()) {
    throw Failure(Code::kPackage, "the network gives another number of outputs than its manifest describes",
                  "there are " + std::to_string(found) + ", not " + std::to_string(outputs().size()));
  }
  for (size_t i = 0; i < found; ++i) RequireFit(loaded_->output_tensors[i], outputs()[i]);
}

double Model::TimedRun() {
  loaded_->output_tensors.clear();
  loaded_->Upload();
  const double begin_ms = NowMs();
  loaded_->Call();
  return NowMs() - begin_ms;
}

EndToEnd Model::EndToEndRun() {
  EndToEnd times{};
  const auto timed = [&] {
    const double begin_ms = NowMs();
    Run();
    times.ms = NowMs() - begin_ms;
  };
  if (loaded_->on_cpu()) {
    timed();
    return times;
  }
  // What fails in there is told as it is, not as the error that TVM would make of it on its way out.
  std::exception_ptr failed;
  const ffi::Function work = ffi::Function::FromTyped([&] {
    try {
      timed();
    } catch (...) {
      failed = std::current_exception();
    }
  });
  try {
    Loaded::Guarded([&] {
      const ffi::Function summed = ffi::Function::GetGlobalRequired(kKernelNanoseconds);
      times.kernels_ms = static_cast<double>(summed(loaded_->device, work).cast<int64_t>()) / 1e6;
    });
  } catch (const Failure&) {
    if (!failed) throw;
  }
  if (failed) std::rethrow_exception(failed);
  return times;
}

std::map<std::string, std::vector<double>> Model::FunctionTimes(int repeat, int warmup) {
  std::map<std::string, double> sums;
  double begin_ms = 0;
  const auto watch = [&](const ffi::AnyView* arguments, int32_t, ffi::Any*) {
    // A function, its name, whether it is about to be called, what it returned, and its arguments.
    loaded_->Wait();
    if (arguments[2].cast<bool>()) {
      begin_ms = NowMs();
    } else {
      sums[arguments[1].cast<std::string>()] += NowMs() - begin_ms;
    }
  };
  // On a machine of its own: nothing takes an instrument off again.
  const ffi::Module machine = loaded_->NewMachine();
  machine->GetFunction("set_instrument").value()(ffi::Function::FromPacked(watch));
  const ffi::Function main = machine->GetFunction(loaded_->entry->function).value();
  loaded_->output_tensors.clear();
  loaded_->Upload();
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

void FreeUnusedMemory() { ffi::Function::GetGlobalRequired("vm.builtin.memory_manager.clear")(); }

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

void AddStatistics(const std::vector<double>& runs_ms, Json* object) {
  object->Set("runs_ms", Json(Json::Array(runs_ms.begin(), runs_ms.end())));
  if (runs_ms.empty()) return;
  std::vector<double> sorted = runs_ms;
  std::sort(sorted.begin(), sorted.end());
  const size_t count = sorted.size();
  const double mean = std::accumulate(sorted.begin(), sorted.end(), 0.0) / static_cast<double>(count);
  double squares = 0;
  for (const double run : sorted) squares += (run - mean) * (run - mean);
  object->Set("min_ms", sorted.front());
  object->Set("median_ms", (sorted[(count - 1) / 2] + sorted[count / 2]) / 2);
  object->Set("mean_ms", mean);
  object->Set("max_ms", sorted.back());
  object->Set("std_ms", std::sqrt(squares / static_cast<double>(count)));
}

}  // namespace agent
