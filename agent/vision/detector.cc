#include "vision/detector.h"

#include <algorithm>

#include "vision/decoder.h"
#include "vision/placement.h"

namespace agent {
namespace {

// What the decoder calls the outputs: the names that the package states, if there are as many as the network has
// outputs, and none of these has one of them; else those of the network.
std::vector<std::string> Called(const std::vector<TensorSpec>& outputs, const std::vector<std::string>& stated) {
  std::vector<std::string> names;
  bool same = outputs.size() == stated.size();
  for (const TensorSpec& spec : outputs) {
    names.push_back(spec.name);
    same = same && std::find(stated.begin(), stated.end(), spec.name) == stated.end();
  }
  return same ? stated : names;
}

}  // namespace

struct Detector::Parts {
  TensorSpec input;
  std::vector<TensorSpec> outputs;
  ImageInput colours;
  Size size;
  Fit fit;
  std::unique_ptr<Decoder> decoder;
  Labels labels;
  std::vector<std::string> names;  // what the decoder calls the outputs
};

Detector::Detector(const Manifest& manifest, const Entry& entry) : parts_(std::make_unique<Parts>()) {
  if (!manifest.usage) {
    throw Failure(Code::kInput, "the package does not say how images become its input, and its outputs results",
                  "build it with --demo NAME");
  }
  const Usage& usage = *manifest.usage;
  if (entry.has_tail) {
    throw Failure(Code::kInput, "the network has a part that is not compiled", "its results cannot be read here");
  }
  if (entry.inputs.size() != 1) {
    throw Failure(Code::kInput, "the network has " + std::to_string(entry.inputs.size()) + " inputs",
                  "one image is what it can be shown here");
  }
  Fitted fitted = MakeDecoder(usage.decoder, {manifest.heads, manifest.metadata, entry.outputs});
  const std::optional<Fit> fit = fitted.fit ? fitted.fit : FitOf(usage.fit);
  if (!fit) throw Failure(Code::kInput, "the fit '" + usage.fit + "' of the package is not known here");
  parts_->input = entry.inputs.front();
  parts_->outputs = entry.outputs;
  parts_->colours = usage.input;
  parts_->size = InputSize(usage.input, entry.inputs.front());
  parts_->fit = *fit;
  parts_->decoder = std::move(fitted.decoder);
  parts_->labels = usage.labels.empty() ? std::move(fitted.labels) : usage.labels;
  parts_->names = Called(entry.outputs, fitted.has_own_names ? Labels() : usage.outputs);
}

Detector::~Detector() = default;
Detector::Detector(Detector&&) noexcept = default;
Detector& Detector::operator=(Detector&&) noexcept = default;

std::vector<Detection> Detector::Detect(const Image& image, Model& model) const {
  const Frame frame = Prepare(image, model);
  model.Run();
  return Decode(model, frame);
}

Frame Detector::Prepare(const Image& image, Model& model) const {
  if (model.IsBound(0)) model.Bind(0, nullptr);  // inferences only read the caller's memory
  return Prepare(image, model.Input(0));
}

std::vector<Detection> Detector::Decode(const Model& model, const Frame& frame) const {
  std::vector<const void*> outputs;
  for (size_t i = 0; i < parts_->outputs.size(); ++i) outputs.push_back(model.Output(i));
  return Decode(outputs, frame);
}

Frame Detector::Prepare(const Image& image, void* input) const {
  const Placed placed = Place(image, parts_->size, parts_->fit);
  WriteTensor(placed.pixels, parts_->colours, parts_->input, input);
  return placed.frame;
}

std::vector<Detection> Detector::Decode(const std::vector<const void*>& outputs, const Frame& frame) const {
  std::vector<Outputs::Output> all;
  for (size_t i = 0; i < parts_->outputs.size(); ++i) {
    const TensorSpec& spec = parts_->outputs[i];
    all.push_back({parts_->names[i], spec.shape, RealNumbers(spec, outputs[i])});
  }
  return parts_->decoder->Decode(Outputs(std::move(all)), frame, parts_->labels);
}

}  // namespace agent
