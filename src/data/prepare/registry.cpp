#include "data/prepare/registry.h"

#include "data/prepare/enwik8.h"
#include "data/prepare/images.h"
#include "data/prepare/listops.h"
#include "data/prepare/text_folder.h"
#include "data/prepare/wikitext.h"

namespace mnemo::data {

const base::Registry<DataSet>& data_sets() {
  static const base::Registry<DataSet> sets = [] {
    base::Registry<DataSet> all("data");
    all.add("enwik8", enwik8());
    all.add("wikitext-2", wikitext_2());      // files: wikitext
    all.add("wikitext-103", wikitext_103());  // files: wikitext
    all.add("text", text_folder());
    all.add("images", image_folder());
    all.add("listops", listops());
    return all;
  }();
  return sets;
}

}  // namespace mnemo::data
