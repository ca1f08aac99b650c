#include "demo/outcome.h"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "machine.h"

namespace agent {

void Parts::Add(const Parts& other) {
  capture_ms += other.capture_ms;
  preprocess_ms += other.preprocess_ms;
  inference_ms += other.inference_ms;
  postprocess_ms += other.postprocess_ms;
}

Parts Parts::Per(int count) const {
  return {capture_ms / count, preprocess_ms / count, inference_ms / count, postprocess_ms / count};
}

std::string Parts::Line() const {
  return Text("capture %.2f ms, preprocess %.2f ms, inference %.2f ms, postprocess %.2f ms", capture_ms, preprocess_ms,
              inference_ms, postprocess_ms);
}

void Parts::Describe(Json* object) const {
  object->Set("capture_ms", capture_ms).Set("preprocess_ms", preprocess_ms);
  object->Set("inference_ms", inference_ms).Set("postprocess_ms", postprocess_ms);
}

Outcome Look(const Shot& shot, int number, const Detector& detector, Model* model, int repeat) {
  Outcome outcome{number, shot.file, {}, {}, {}, {}};
  outcome.parts.capture_ms = shot.capture_ms;
  const double began_ms = NowMs();
  outcome.frame = detector.Prepare(FrameOf(shot.picture.pixels), *model);
  const double prepared_ms = NowMs();
  model->Run();
  const double inferred_ms = NowMs();
  outcome.detections = detector.Decode(*model, outcome.frame);
  const double decoded_ms = NowMs();
  outcome.parts.preprocess_ms = prepared_ms - began_ms;
  outcome.parts.inference_ms = inferred_ms - prepared_ms;
  outcome.parts.postprocess_ms = decoded_ms - inferred_ms;
  outcome.runs_ms = repeat > 0 ? Measure(model, repeat, 1, 0) : std::vector<double>{outcome.parts.inference_ms};
  return outcome;
}

Summary::Summary() : started_ms_(NowMs()) {}

void Summary::Add(const Outcome& outcome) {
  sum_.Add(outcome.parts);
  ++frames_;
  seconds_ = (NowMs() - started_ms_) / 1e3;
}

std::string Summary::Line() const {
  return Text("%d frames in %.2f s, %.2f FPS; mean of each: ", frames_, seconds_, FramesPerSecond()) +
         sum_.Per(frames_).Line();
}

Json Summary::Describe() const {
  Json json = Json::NewObject();
  json.Set("frames", frames_).Set("seconds", seconds_).Set("fps", FramesPerSecond());
  sum_.Per(frames_ > 0 ? frames_ : 1).Describe(&json);
  return json;
}

std::string Text(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  char* text = nullptr;
  const int size = vasprintf(&text, format, arguments);
  va_end(arguments);
  const std::unique_ptr<char, decltype(&std::free)> owned(text, &std::free);
  return size < 0 ? "" : std::string(text, static_cast<size_t>(size));
}

}  // namespace agent
