// The command line of one command: positional arguments, and options with values or without.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace agent {

class Arguments {
 public:
  // `options` are the names that the command knows, without their dashes; `flags` are those without a value, and
  // `optional` those whose value may be left out. Failure(kUsage) for any other.
  Arguments(std::vector<std::string> words, const std::vector<std::string>& options,
            const std::vector<std::string>& flags = {}, const std::vector<std::string>& optional = {});

  // The only positional argument; `what` names it in messages.
  const std::string& Only(const std::string& what) const;
  void None() const;
  // All of them.
  const std::vector<std::string>& positional() const { return positional_; }

  bool Has(const std::string& name) const;
  // The value that was given last, or `otherwise`.
  std::string Text(const std::string& name, const std::string& otherwise = "") const;
  // All values in their order.
  std::vector<std::string> All(const std::string& name) const;
  // A whole number from `least` to `most`.
  int Integer(const std::string& name, int otherwise, int least, int most) const;

 private:
  std::vector<std::string> positional_;
  std::vector<std::pair<std::string, std::string>> options_;
};

}  // namespace agent
