#include "vision/detector.h"

#include <algorithm>

#include "vision/decoder.h"
#include "vision/preprocess.h"

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

// The input in the network's own memory: what the caller lent it, inferences only read.
void* OwnInput(Model& model) {
  if (model.IsBound(0)) model.Bind(0, nullptr);
  return model.Input(0);
}

}  // namespace

Detector::Detector(const Manifest& manifest, const Entry& entry) {
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
  TensorSpec seen = entry.inputs.front();
  if (usage.camera) {
    const CameraFormat& camera = *usage.camera;
    pixels_ = PixelFormatOf(camera.pixels);
    if (!pixels_) throw Failure(Code::kInput, "frames of '" + camera.pixels + "' are not known here");
    const size_t bytes =
        FrameBytes({nullptr, static_cast<int>(camera.height), static_cast<int>(camera.width), 0, *pixels_});
    if (std::string(seen.type.name) != "uint8" || seen.bytes != bytes) {
      throw Failure(Code::kInput, "the network's input is not a frame of the camera that the package names");
    }
    camera_ = camera;
    seen.shape = usage.input.shape;
    for (const int64_t size : seen.shape) {
      if (size > kLongestSide) throw Failure(Code::kInput, "the package's frames become an impossible image");
    }
  }
  input_ = entry.inputs.front();
  outputs_ = entry.outputs;
  colours_ = usage.input;
  size_ = InputSize(usage.input, seen);
  fit_ = *fit;
  decoder_ = std::move(fitted.decoder);
  labels_ = usage.labels.empty() ? std::move(fitted.labels) : usage.labels;
  names_ = Called(entry.outputs, fitted.has_own_names ? Labels() : usage.outputs);
}

std::vector<Detection> Detector::Detect(const CameraFrame& frame, Model& model) const {
  const Frame placed = Prepare(frame, model);
  model.Run();
  return Decode(model, placed);
}

Frame Detector::Prepare(const CameraFrame& frame, Model& model) const { return Prepare(frame, OwnInput(model)); }

std::vector<Detection> Detector::Decode(const Model& model, const Frame& frame) const {
  std::vector<const void*> outputs;
  for (size_t i = 0; i < outputs_.size(); ++i) outputs.push_back(model.Output(i));
  return Decode(outputs, frame);
}

Frame Detector::Prepare(const CameraFrame& frame, void* input) const {
  if (!camera_) {
    const Image image = FromFrame(frame);
    const Placed placed = Place(image, size_, fit_);  // may borrow its pixels
    WriteTensor(placed.pixels, colours_, input_, input);
    return placed.frame;
  }
  const CameraFormat& camera = *camera_;
  if (frame.width != camera.width || frame.height != camera.height || frame.format != *pixels_) {
    throw Failure(Code::kInput,
                  "a frame of " + std::to_string(frame.width) + " x " + std::to_string(frame.height) +
                      " pixels, or in another format",
                  "the package takes " + camera.pixels + " of " + std::to_string(camera.width) + " x " +
                      std::to_string(camera.height) + ": its network begins with what becomes of such");
  }
  CopyFrame(frame, input);
  return Framed({frame.height, frame.width}, size_, fit_);
}

std::vector<Detection> Detector::Decode(const std::vector<const void*>& outputs, const Frame& frame) const {
  std::vector<Outputs::Output> all;
  for (size_t i = 0; i < outputs_.size(); ++i) {
    const TensorSpec& spec = outputs_[i];
    const bool whole = !spec.steps && std::string(spec.type.name).find("int") != std::string::npos;
    all.push_back({names_[i], spec.shape, RealNumbers(spec, outputs[i]), whole});
  }
  return decoder_->Decode(Outputs(std::move(all)), frame, labels_);
}

}  // namespace agent
