#include "demo/source.h"

#include <cstdio>
#include <utility>

#include "failure.h"
#include "images/codecs.h"
#include "images/image_file.h"
#include "machine.h"
#include "watch.h"

namespace agent {
namespace {

Shot ShotOf(const std::string& file, bool jpeg) {
  const double began_ms = NowMs();
  std::string content = ReadImageFile(file);
  Image pixels = DecodeImage(content, file);
  const double capture_ms = NowMs() - began_ms;
  // One that was turned upright is another image than the file's.
  const bool as_it_is = jpeg && IsJpeg(content) && Orientation(content) == 1;
  return {file, {std::move(pixels), as_it_is ? std::move(content) : ""}, capture_ms};
}

}  // namespace

Source SourceOfFiles(std::vector<std::string> files, bool jpeg) {
  return [files = std::move(files), jpeg, next = size_t{0}, found = false]() mutable -> std::optional<Shot> {
    while (next < files.size() && !Interrupted()) {
      try {
        Shot shot = ShotOf(files[next++], jpeg);
        found = true;
        return shot;
      } catch (const Failure& failure) {
        if (next == files.size() && !found) throw;
        std::fprintf(stderr, "agent: passed over: %s\n", failure.what());
      }
    }
    return std::nullopt;
  };
}

Source SourceOfCamera(std::shared_ptr<Camera> camera) {
  return [camera = std::move(camera)]() -> std::optional<Shot> {
    const double began_ms = NowMs();
    std::optional<Picture> picture = camera->Next();
    if (!picture) return std::nullopt;
    return Shot{camera->name(), std::move(*picture), NowMs() - began_ms};
  };
}

}  // namespace agent
