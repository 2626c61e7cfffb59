#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bundle/load.h"
#include "bundle/model_heads.h"
#include "bundle/preprocessing.h"
#include "bundle/text_conventions.h"
#include "text/tokenizer.h"

namespace mnemo::models {
class ImageModel;
class Model;
struct ModelOptions;
class PairModel;
class TextModel;
}  // namespace mnemo::models
namespace mnemo::core {
class Model;
}

namespace mnemo::bundle {

/// Content of a model folder, of texts or of images, ours or another library's.
struct Bundle {
  std::string folder = {};  ///< empty: the model is not in a folder
  std::shared_ptr<models::Model> model = {};
  std::shared_ptr<const text::Tokenizer> tokenizer = {};  ///< null: no vocabulary (images, made tasks)
  TextConventions conventions = {};
  const weights::ForeignFormat* format = nullptr;  ///< null: Mnemo's own

  const models::ModelOptions& options() const;
  bool is_images() const;
  /// The model, if it reads texts. Throws InputError "WHO: ..." otherwise.
  std::shared_ptr<models::TextModel> text(std::string_view who) const;
  /// The tokenizer. Throws InputError "WHO: FOLDER: ..." for a model that has none.
  const text::Tokenizer& words(std::string_view who) const;
  /// The model, if it reads images, or pairs. Throws InputError naming the folder otherwise.
  std::shared_ptr<models::ImageModel> images() const;
  std::shared_ptr<models::PairModel> pairs() const;
  /// How an image becomes what the model reads. Throws InputError for a model of another kind, and where the folder
  /// does not say.
  ImagePreprocessing preprocessing() const;
  /// The heads of a model of images, with the names of their classes.
  std::vector<ModelHead> heads() const;
};

/// The folder that holds the model at `path`. That is `path` itself for a model folder or a checkpoint. For a run it is
/// `model/`, or a checkpoint if there is no `model/` yet or `checkpoint` asks for one ("latest", "best" or a step).
/// Logs what is used of a run and changes nothing in it, because the training may still be running. Throws InputError
/// for a damaged checkpoint.
std::string model_folder(const std::string& path, const std::optional<std::string>& checkpoint = {});
/// model_folder() that logs nothing, for a look at a model that is read later or not at all.
std::string find_model_folder(const std::string& path);

/// Reads the model that model_folder finds, whatever model it is. Throws InputError naming the file and what is
/// missing, unexpected or wrong.
Bundle read_bundle(const std::string& path, const std::optional<std::string>& checkpoint = {});

/// Files of a model folder beside its configuration, weights and card, by name: vocabulary, classes.txt, images.json
/// and the like. Files of the training in a checkpoint are left out.
std::map<std::string, std::string> files_beside(const std::string& model_folder);

/// Content of a model folder to write.
struct BundleContent {
  const models::ModelOptions& options;
  const core::Model& model;
  std::shared_ptr<const text::Tokenizer> tokenizer = {};
  std::map<std::string, std::string> files = {};  ///< how inputs are read: name to content, text.json or images.json
  std::vector<std::string> classes = {};
  std::string card = {};  ///< README.md
};
/// All files of the folder but weights and card, by name.
std::map<std::string, std::string> files_of(const BundleContent& content);
/// Writes the folder whole, as write_model_folder does.
void write_bundle(const std::string& folder, const BundleContent& content);

}  // namespace mnemo::bundle
