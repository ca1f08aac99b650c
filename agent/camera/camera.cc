#include "camera/camera.h"

#include <algorithm>

#include "failure.h"

namespace agent {
namespace {

constexpr const char* kAny = "auto";
constexpr const char* kRaspberry = "rpicam";

bool BeginsWith(const std::string& text, const std::string& beginning) { return text.rfind(beginning, 0) == 0; }

bool IsNumber(const std::string& text) {
  return !text.empty() && text.size() < 4 &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

std::unique_ptr<Camera> OpenCamera(const std::string& which, const CameraWish& wish) {
  if (which.empty() || which == kAny) {
    const std::string found = FindVideo4Linux();
    if (!found.empty()) return OpenVideo4Linux(found, wish);
    if (HasRaspberryCamera()) return OpenRaspberryCamera(0, wish);
    throw Failure(Code::kInput, "there is no camera on this board", "connect one, or name it with --camera DEVICE");
  }
  for (const char* scheme : {"rtsp://", "http://", "https://"}) {
    if (BeginsWith(which, scheme)) return OpenStream(which);
  }
  if (which == kRaspberry) return OpenRaspberryCamera(0, wish);
  const std::string number = BeginsWith(which, std::string(kRaspberry) + ":") ? which.substr(which.find(':') + 1) : "";
  if (IsNumber(number)) return OpenRaspberryCamera(std::stoi(number), wish);
  return OpenVideo4Linux(IsNumber(which) ? "/dev/video" + which : which, wish);
}

}  // namespace agent
