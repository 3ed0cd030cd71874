/* Kinds of calls that were learnt: how their tensors look, and the launches of both passes. */
#pragma once
#include <ATen/ATen.h>

#include <deque>
#include <unordered_map>
#include <vector>

#include "launch.h"

/* What a kernel's code depends on in a tensor, and what makes it an ordinary one. */
struct Looks {
    c10::DispatchKeySet keys;
    c10::ScalarType dtype;
    c10::Device device;
    std::vector<int64_t> sizes, strides;

    explicit Looks(const at::Tensor &t)
        : keys(t.key_set()), dtype(t.scalar_type()), device(t.device()), sizes(t.sizes().vec()),
          strides(t.strides().vec())
    {
    }

    bool fit(const at::Tensor &t) const
    {
        return fit_apart_from_strides(t) && t.strides() == strides;
    }

    bool fit_apart_from_strides(const at::Tensor &t) const
    {
        return t.key_set() == keys && t.scalar_type() == dtype && t.device() == device &&
               t.sizes() == sizes;
    }
};

struct Call {
    int64_t dim;
    std::vector<Looks> looks; /* of x, the four parameters and perhaps a bias */
    Plan forward, first, second;
    std::vector<int64_t> sums; /* the shape of partial sums, which `second` adds; none: empty */
    bool trains = false;       /* whether there are launches for backward */

    bool fit(const std::vector<at::Tensor> &tensors) const
    {
        if (tensors.size() != looks.size())
            return false;
        for (size_t i = 0; i < looks.size(); i++)
            if (!looks[i].fit(tensors[i]))
                return false;
        return true;
    }
};

/* All of them. Whoever asks holds the GIL; what is found stays, since graphs hold it. */
class Calls {
  public:
    /* What is known of calls with tensors like these; null: nothing. */
    Call *find(int64_t dim, const std::vector<at::Tensor> &tensors) const
    {
        const auto found = by_hash.equal_range(hash(dim, tensors[0].sizes()));
        for (auto it = found.first; it != found.second; ++it)
            if (it->second->dim == dim && it->second->fit(tensors))
                return it->second;
        return nullptr;
    }

    /* Whether there was room. */
    bool add(Call &&call)
    {
        if (all.size() >= MOST)
            return false;
        all.push_back(std::move(call));
        by_hash.emplace(hash(all.back().dim, all.back().looks[0].sizes), &all.back());
        return true;
    }

  private:
    static constexpr size_t MOST = 4096;
    std::deque<Call> all; /* in which nothing moves */
    std::unordered_multimap<size_t, Call *> by_hash;

    static size_t hash(int64_t dim, c10::IntArrayRef sizes)
    {
        size_t hash = static_cast<size_t>(dim);
        for (int64_t size : sizes)
            hash = hash * 1000003 + static_cast<size_t>(size);
        return hash;
    }
};
