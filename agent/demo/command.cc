// `agent demo`: images and cameras through a network, without a host.

#include <charconv>
#include <memory>
#include <optional>

#include "arguments.h"
#include "camera/camera.h"
#include "commands.h"
#include "demo/outcome.h"
#include "demo/report.h"
#include "demo/source.h"
#include "machine.h"
#include "model.h"
#include "vision/detector.h"
#include "watch.h"

namespace agent {
namespace {

constexpr int kMost = 1'000'000;

// What the command line asks for.
struct Wanted {
  std::string release;
  std::vector<std::string> files;
  std::optional<std::string> camera;
  CameraWish wish;
  int repeat;
  int threads;
  int frames;
  bool json;
  bool stream;
};

// WIDTHxHEIGHT
void ReadSize(const std::string& text, CameraWish* wish) {
  constexpr int kMostPixels = 1 << 14;  // along a side
  const char* end = text.data() + text.size();
  const auto [cross, width_error] = std::from_chars(text.data(), end, wish->width);
  if (width_error == std::errc() && cross != end && *cross == 'x') {
    const auto [rest, height_error] = std::from_chars(cross + 1, end, wish->height);
    const auto fits = [](int side) { return side > 0 && side <= kMostPixels; };
    if (height_error == std::errc() && rest == end && fits(wish->width) && fits(wish->height)) return;
  }
  throw Failure(Code::kUsage, "--size " + text + " is not a size", "give WIDTHxHEIGHT, as 640x480");
}

Wanted Read(const Words& words) {
  const Arguments arguments(words, {"image", "repeat", "threads", "frames", "size"}, {"json", "stream"}, {"camera"});
  Wanted wanted{};
  // Files may follow the one of --image, as the shell lists them.
  std::vector<std::string> names = arguments.positional();
  if (names.empty()) throw Failure(Code::kUsage, "there must be one model or package", "none was given");
  wanted.release = names.front();
  wanted.files = arguments.All("image");
  wanted.files.insert(wanted.files.end(), names.begin() + 1, names.end());
  if (arguments.Has("camera")) wanted.camera = arguments.Text("camera");
  if (wanted.camera ? !wanted.files.empty() : arguments.All("image").empty()) {
    throw Failure(Code::kUsage, "give either --image FILE... or --camera [DEVICE]");
  }
  wanted.repeat = arguments.Integer("repeat", 1, 1, kMost);
  wanted.threads = arguments.Integer("threads", 0, 1, kMost);
  wanted.frames = arguments.Integer("frames", 0, 1, kMost);
  if (arguments.Has("repeat") && (wanted.camera || wanted.files.size() > 1)) {
    throw Failure(Code::kUsage, "--repeat needs a single image");
  }
  if (arguments.Has("size")) ReadSize(arguments.Text("size"), &wanted.wish);
  wanted.stream = arguments.Has("stream");
  wanted.json = arguments.Has("json");
  wanted.wish.jpeg = wanted.stream;
  return wanted;
}

}  // namespace

Code DemoCommand(const Words& words) {
  const Wanted wanted = Read(words);
  RememberInterruption();
  const Package package(RealPath(PathOfRelease(wanted.release)));
  const Manifest& manifest = package.manifest();
  const int threads = ChooseThreads(wanted.threads, manifest.threads);
  const Detector detector(manifest, manifest.entries.front());
  // It warms up while the network is loaded.
  const std::shared_ptr<Camera> camera = wanted.camera ? OpenCamera(*wanted.camera, wanted.wish) : nullptr;
  const Source source = camera ? SourceOfCamera(camera) : SourceOfFiles(wanted.files, wanted.stream);
  const double before_ms = MillisecondsSinceStart();
  Model model(package, threads);
  const double load_ms = MillisecondsSinceStart() - before_ms;

  const Kind kind = wanted.camera ? Kind::kCamera : wanted.files.size() > 1 ? Kind::kImages : Kind::kImage;
  const int repeat = kind == Kind::kImage ? wanted.repeat : 0;
  const std::string& name = camera ? camera->name() : wanted.files.front();
  const Showing showing{manifest, wanted.release, kind, name, threads, load_ms, repeat};
  const std::unique_ptr<Report> report =
      wanted.json || wanted.stream ? MessageReport(showing, wanted.stream) : LogReport(showing);
  report->Begin();
  Summary summary;
  try {
    while (wanted.frames == 0 || summary.frames() < wanted.frames) {
      const std::optional<Shot> shot = source();
      if (!shot) break;
      const Outcome outcome = Look(*shot, summary.frames(), detector, &model, repeat);
      report->Add(outcome, shot->picture);
      summary.Add(outcome);
    }
  } catch (const Failure& failure) {
    // What was seen until then counts, unless nobody reads it.
    if (failure.code() != Code::kOutput && summary.frames() > 0) report->End(summary, Interrupted());
    throw;
  }
  report->End(summary, Interrupted());
  return Code::kDone;
}

}  // namespace agent
