// A package's network, loaded into this process. TVM's headers stay behind this one.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "files.h"

namespace agent {

// The times of an inference that begins and ends in the processor's memory, in milliseconds.
struct EndToEnd {
  // From before the inputs are copied to the device until the outputs are back from there.
  double ms;
  // The sum of the times of the device's kernels, by its own clock; nothing where the processor is the device.
  std::optional<double> kernels_ms;
};

class Model {
 public:
  // Loads the library, which starts threads of its own: `threads`, the calling one among them. From here on that one
  // calculates without subnormals. Failure(kPackage) if the library is not for this machine or does not load.
  Model(const Package& package, int threads);
  ~Model();

  // Turns to one of the manifest's entries, at first the first one. Each has inputs of its own from its first use on;
  // code, weights and threads are shared.
  void Enter(size_t entry);
  const std::vector<TensorSpec>& inputs() const;
  const std::vector<TensorSpec>& outputs() const;

  // What the OpenCL device calls itself that the network runs on; nothing for the processor.
  std::optional<std::string> Device() const;

  // Memory of an input, `inputs()[index].bytes` long; it keeps its content from run to run.
  void* Input(size_t index);
  // Has an input lie in the caller's memory, aligned as TVM's, until it is bound again; null: in memory of its own, as
  // zeros.
  void Bind(size_t index, void* memory);
  bool IsBound(size_t index) const;
  // Of the library, whose networks share them.
  int threads() const;
  void SetThreads(int threads);

  void SetRecordedInputs(const Package& package, const Case& recorded);

  // One inference. Failure(kOther) if it fails, Failure(kPackage) if the outputs are not the manifest's.
  void Run();
  // The same without looking at the outputs, and its time in milliseconds.
  double TimedRun();
  // An inference as Run does it, and its times.
  EndToEnd EndToEndRun();
  // The times of each function in `repeat` inferences after `warmup`, in milliseconds: the sum of its calls in each.
  // Failure(kOther) if an inference fails.
  std::map<std::string, std::vector<double>> FunctionTimes(int repeat, int warmup);
  // Memory of an output of the last Run, `outputs()[index].bytes` long.
  const void* Output(size_t index) const;

 private:
  struct Loaded;
  std::vector<Entry> entries_;
  std::vector<std::unique_ptr<Loaded>> all_;  // of each entry that was used
  Loaded* loaded_;                            // of the one in use
};

// Gives back what the process keeps of the memory of networks for their next inferences, where no network has it.
void FreeUnusedMemory();

// Times of `repeat` groups of `number` inferences, each divided by `number`, after `warmup` inferences; in
// milliseconds.
std::vector<double> Measure(Model* model, int repeat, int number, int warmup);
// Adds `runs_ms` and, if there are any, their min_ms, median_ms, mean_ms, max_ms and (the population's) std_ms.
void AddStatistics(const std::vector<double>& runs_ms, Json* object);

}  // namespace agent
