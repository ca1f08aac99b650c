// `agent facts`: what the machine is. What cannot be read is null.

#include <elf.h>
#include <fcntl.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <set>
#include <sstream>

#include "arguments.h"
#include "commands.h"
#include "files.h"
#include "machine.h"
#include "version.h"

namespace agent {
namespace {

const std::string kCpu0 = "/sys/devices/system/cpu/cpu0/";

Json TextOrNull(const std::string& text) { return text.empty() ? Json() : Json(text); }

Json NumberOrNull(const std::string& text) {
  char* end = nullptr;
  const long long value = std::strtoll(text.c_str(), &end, 10);
  return text.empty() || *end ? Json() : Json(static_cast<int64_t>(value));
}

// Names and values of lines "name: value" or "name=value"; the first of each name.
std::map<std::string, std::string> Pairs(const std::string& text, char separator) {
  std::map<std::string, std::string> pairs;
  std::istringstream lines(text);
  std::string line;
  while (std::getline(lines, line)) {
    const size_t split = line.find(separator);
    if (split == std::string::npos) continue;
    const size_t name_end = line.find_last_not_of(" \t", split == 0 ? 0 : split - 1);
    const size_t value = line.find_first_not_of(" \t\"", split + 1);
    const size_t last = line.find_last_not_of(" \t\"");
    pairs.emplace(line.substr(0, name_end + 1), value == std::string::npos ? "" : line.substr(value, last - value + 1));
  }
  return pairs;
}

// The header of the shell: what programs of this system look like.
Json Elf() {
  Elf64_Ehdr header{};
  Elf32_Ehdr narrow{};
  const Descriptor file(open("/bin/sh", O_RDONLY | O_CLOEXEC));
  if (!file || read(file.get(), &header, sizeof header) != sizeof header) return Json();
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return Json();
  std::memcpy(&narrow, &header, sizeof narrow);
  const bool wide = header.e_ident[EI_CLASS] == ELFCLASS64;
  const uint32_t flags = wide ? header.e_flags : narrow.e_flags;
  // The machine stands at the same place in both classes. Of other architectures than its own the agent knows no more.
  const bool own = header.e_machine == AGENT_ELF_MACHINE;
  const std::string machine = own ? OwnElfMachine() : std::to_string(header.e_machine);
  Json float_abi;
  if (own && AGENT_FLOAT_MASK != 0) float_abi = (flags & AGENT_FLOAT_MASK) == AGENT_FLOAT_HARD ? "hard" : "soft";
  return Json::NewObject({{"class", wide ? 64 : 32}, {"machine", machine}, {"float_abi", float_abi}});
}

Json Cpu() {
  const auto info = Pairs(ReadSystemFile("/proc/cpuinfo"), ':');
  const auto get = [&](const char* name) { return info.count(name) ? info.at(name) : std::string(); };
  std::istringstream words(info.count("flags") ? get("flags") : get("Features"));
  const std::multiset<std::string> features(std::istream_iterator<std::string>(words), {});
  return Json::NewObject({{"name", TextOrNull(get("model name"))},
                          {"implementer", TextOrNull(get("CPU implementer"))},
                          {"part", TextOrNull(get("CPU part"))},
                          {"features", Json(Json::Array(features.begin(), features.end()))}});
}

Json Frequency() {
  return Json::NewObject({{"current", NumberOrNull(ReadSystemFile(kCpu0 + "cpufreq/scaling_cur_freq"))},
                          {"minimum", NumberOrNull(ReadSystemFile(kCpu0 + "cpufreq/scaling_min_freq"))},
                          {"maximum", NumberOrNull(ReadSystemFile(kCpu0 + "cpufreq/scaling_max_freq"))}});
}

Json Throttling() {
  Json causes{Json::Array{}};
  Json throttling = Json::NewObject();
  // Raspberry Pi firmware: bits 0 to 3 hold now, 16 to 19 since boot (documentation of `vcgencmd get_throttled`).
  const std::string firmware = ReadSystemFile("/sys/devices/platform/soc/soc:firmware/get_throttled");
  if (!firmware.empty()) {
    const unsigned long bits = std::strtoul(firmware.c_str(), nullptr, 16);
    const char* const names[] = {"under-voltage", "frequency capped", "throttled", "temperature limit"};
    for (int i = 0; i < 4; ++i) {
      if (bits >> (16 + i) & 1) causes.Add(names[i]);
    }
    return throttling.Set("now", (bits & 15) != 0).Set("since_boot", (bits >> 16 & 15) != 0).Set("causes", causes);
  }
  // x86 counts how often a core got too hot.
  const std::string count = ReadSystemFile(kCpu0 + "thermal_throttle/core_throttle_count");
  if (count.empty()) return Json();
  const bool throttled = std::strtoul(count.c_str(), nullptr, 10) > 0;
  if (throttled) causes.Add("temperature limit");
  return throttling.Set("now", Json()).Set("since_boot", throttled).Set("causes", causes);
}

// Sizes that a file of /proc states, as "MemTotal: 3884 kB", in bytes: the names of fields, and of lines.
Json Sizes(const std::string& path, const std::vector<std::pair<const char*, const char*>>& names) {
  const auto info = Pairs(ReadSystemFile(path), ':');
  Json sizes = Json::NewObject();
  for (const auto& [field, line] : names) {
    const auto found = info.find(line);
    const bool known = found != info.end();
    sizes.Set(field, known ? Json(int64_t{1024 * std::strtoll(found->second.c_str(), nullptr, 10)}) : Json());
  }
  return sizes;
}

Json Disk(const std::string& path) {
  struct statvfs state;
  if (statvfs(path.c_str(), &state) != 0) throw Failure(Code::kInput, "cannot look at " + path, SystemError());
  return Json::NewObject({{"path", RealPath(path)},
                          {"total_bytes", Json::Size(uint64_t{state.f_blocks} * state.f_frsize)},
                          {"free_bytes", Json::Size(uint64_t{state.f_bavail} * state.f_frsize)}});
}

}  // namespace

Json ProcessMemory() {
  return Sizes("/proc/self/status",
               {{"resident_bytes", "VmRSS"}, {"peak_bytes", "VmHWM"}, {"anonymous_bytes", "RssAnon"}});
}

Json Facts(const std::string& path) {
  utsname system{};
  uname(&system);
  std::string hardware = ReadSystemFile("/proc/device-tree/model");
  if (hardware.empty()) hardware = ReadSystemFile("/sys/class/dmi/id/product_name");
  auto release = Pairs(ReadSystemFile("/etc/os-release"), '=');

  Json facts = Json::NewObject();
  facts.Set("machine", system.machine).Set("kernel", system.release).Set("system", TextOrNull(release["PRETTY_NAME"]));
  facts.Set("hardware", TextOrNull(hardware)).Set("glibc", GlibcVersion()).Set("elf", Elf()).Set("cpu", Cpu());
  facts.Set("cores", Processors());
  facts.Set("governor", TextOrNull(ReadSystemFile(kCpu0 + "cpufreq/scaling_governor")));
  facts.Set("frequency_khz", Frequency()).Set("temperature_c", Temperature()).Set("throttling", Throttling());
  facts.Set("memory", Sizes("/proc/meminfo", {{"total_bytes", "MemTotal"}, {"available_bytes", "MemAvailable"}}));
  facts.Set("disk", Disk(path)).Set("agent", Version());
  return facts;
}

Code FactsCommand(const Words& words) {
  const Arguments arguments(words, {"path"});
  arguments.None();
  Print(Facts(arguments.Text("path", ".")));
  return Code::kDone;
}

}  // namespace agent
