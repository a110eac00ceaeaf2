-- wordings_seed - answers written by people, loaded with `deja seed`: an entry of its own kind (pin = 1), its other wordings and the near questions
-- that never get its answer, put or taken away as one. What is loaded from one file is a set: putting the same again changes nothing.
--
-- Keys behind deja:{namespace}:  seeds  zset of sets by last change;  seed:<set>  hash entry id -> {"d":digest,"w":[wordings],"n":[near]}
--
-- deja_seed KEYS {ns}  ARGV set dry id partition digest ttl_s n_wordings n_near [wording]... [near]... [field value]...
--     Puts one answer. dry 1 = only says what would become of it. ttl_s 1099511627776 = never ends. Reply: state and detail: NEW, CHANGED,
--     SAME; or, nothing having changed, TAKEN and the set this question is in; DENIED: this answer was called wrong; TEXT and a wording
--     that leads to another answer already.
-- deja_unseed KEYS {ns}  ARGV set id [dry]
--     Takes one answer of a set away, with its wordings. Reply: 1, or 0 when it was not in the set.
-- deja_seeds KEYS {ns}  ARGV [set]
--     Names of the sets and how many answers each has; or the ids of one set.

do
  local NEVER_S = 2 ^ 40
  local SEED_TEXTS_MAX, STRAY_MAX = 64, 16

  local function list_json(list)
    return #list == 0 and '[]' or cjson.encode(list)
  end

  local function texts_of(list)
    local out = {}
    for i, text in ipairs(type(list) == 'table' and list or {}) do
      if type(text) == 'string' and i <= SEED_TEXTS_MAX then out[#out + 1] = text end
    end
    return out
  end

  -- What stands in the set under this id; of a record that is damaged, what can be read of it.
  local function seeded(prefix, set, id)
    local text = redis.call('HGET', prefix .. 'seed:' .. set, id)
    if not text then return nil end
    local ok, item = pcall(cjson.decode, text)
    item = ok and type(item) == 'table' and item or {}
    return {d = item.d, w = texts_of(item.w), n = texts_of(item.n), p = type(item.p) == 'string' and is_id(item.p) and item.p or nil}
  end

  local function wording_key(prefix, part, text)
    return prefix .. 'e:' .. string.sub(redis.sha1hex(part .. '\n' .. text), 1, 32)
  end

  -- The wordings of an item that the new one has not any more.
  local function drop_texts(prefix, id, e, old, keep)
    for _, list in ipairs({{old.w, keep.w}, {old.n, keep.n}}) do
      local still = {}
      for _, text in ipairs(list[2] or {}) do still[text] = true end
      for _, text in ipairs(list[1] or {}) do
        if not still[text] then judge_text(prefix, 'revoke', id, e, text, 'seed', {}) end
      end
    end
  end

  local function seed_problem(prefix, set, id, part, f, w)
    local owner = redis.call('HGET', prefix .. 'e:' .. id, 'set')
    if owner and owner ~= set and seeded(prefix, owner, id) then return 'TAKEN', owner end
    if is_denied(prefix, id, f.ah, now_s()) then return 'DENIED', '' end
    for _, text in ipairs(w) do
      local of = redis.call('HGET', wording_key(prefix, part, text), 'of')
      if of and of ~= '' and of ~= id and redis.call('EXISTS', prefix .. 'e:' .. of) == 1 then return 'TEXT', text end
    end
  end

  local function seed_args(args)
    local n_w, n_n = number(args[7], 0, SEED_TEXTS_MAX), number(args[8], 0, SEED_TEXTS_MAX)
    if not n_w or not n_n or #args < 10 + n_w + n_n or (#args - n_w - n_n) % 2 ~= 0 then return nil end
    local w, n, f, from = {}, {}, {}, 9 + n_w + n_n
    for i = 9, 8 + n_w do w[#w + 1] = args[i] end
    for i = 9 + n_w, 8 + n_w + n_n do n[#n + 1] = args[i] end
    for i = from, #args, 2 do f[args[i]] = args[i + 1] end
    for _, list in ipairs({w, n}) do
      for _, text in ipairs(list) do
        if text_problem(text) then return nil, text_problem(text) end
      end
    end
    return w, n, f, from
  end

  local function put_seed(prefix, id, part, ttl, args, from, f)
    local now, fields = now_s(), {}
    for i = from, #args do fields[#fields + 1] = args[i] end
    for _, v in ipairs({'set', args[1], 'created', tostring(now), 'ttl', tostring(ttl), 'ep', tostring(epoch_of(prefix, 'now'))}) do
      fields[#fields + 1] = v
    end
    local old = stored_fields(prefix .. 'e:' .. id)
    if old then unlist(prefix, id, old) end
    f.sz = put_sized(fields, f, part)
    budget_in(prefix, id, f)
    place(prefix, id, part, fields, 1, now + ttl, ttl, now)
    for _, key in ipairs(index_keys(prefix, f)) do
      add_until(key, id, now + ttl, now)
    end
    local key, sha = question_key(prefix, f.q)
    add_until(key, sha .. ':' .. id, now + ttl, now)
    tell(prefix, nil, 'op', 'put', 'id', id, 'part', part, 'src', '')
  end

  local function deja_seed(keys, args)
    local prefix = prefix_of(keys[1])
    if #keys ~= 1 or not prefix then return bad('deja_seed needs 1 key that names the key space, as in {deja}') end
    local set, id, part, digest, ttl = args[1], args[3], args[4], args[5], number(args[6] or '', 1, NEVER_S)
    if not set or set == '' or #set > 128 or string.find(set, '%c') then
      return bad('deja_seed: the set must have a name of 1 to 128 bytes without control characters')
    end
    if not is_id(id) or not is_id(part) or not is_id(digest) then return bad('deja_seed: id, partition, digest must be 32 hex digits') end
    if not ttl then return bad('deja_seed: ttl_s must be from 1 to 1099511627776') end
    local w, n, f, from = seed_args(args)
    if not w then return bad('deja_seed: ' .. (n or 'at most 64 wordings and 64 near questions, then fields and values in pairs')) end
    local state, detail = seed_problem(prefix, set, id, part, f, w)
    if state then return {state, detail} end
    local old, e = seeded(prefix, set, id), stored_fields(prefix .. 'e:' .. id)
    local there = e and not is_void(prefix, e)
    if old and there and old.d == digest then return {'SAME', ''} end
    state = old and there and 'CHANGED' or 'NEW'
    if args[2] == '1' then return {state, ''} end
    put_seed(prefix, id, part, ttl, args, from, f)
    e = {part = part, tenant = f.tenant, model = f.model, ns = f.ns}
    if old then drop_texts(prefix, id, e, old, {w = w, n = n}) end
    for _, text in ipairs(w) do judge_text(prefix, 'approve', id, e, text, 'seed', {ttl = tostring(ttl)}) end
    for _, text in ipairs(n) do judge_text(prefix, 'veto', id, e, text, 'seed', {ttl = tostring(ttl)}) end
    redis.call('HSET', prefix .. 'seed:' .. set, id,
               '{"d":"' .. digest .. '","w":' .. list_json(w) .. ',"n":' .. list_json(n) .. ',"p":"' .. part .. '"}')
    redis.call('ZADD', prefix .. 'seeds', now_s(), set)
    return {state, ''}
  end

  local function deja_unseed(keys, args)
    local prefix = prefix_of(keys[1])
    if #keys ~= 1 or not prefix then return bad('deja_unseed needs 1 key that names the key space, as in {deja}') end
    if #args < 2 or #args > 3 or (args[3] and args[3] ~= 'dry') then return bad('deja_unseed needs: set id [dry]') end
    local set, id = args[1], args[2]
    local old = seeded(prefix, set, id)
    if not old then return 0 end
    if args[3] then return 1 end
    local n, part = 0, old.p or redis.call('HGET', prefix .. 'e:' .. id, 'part') or ''
    if part ~= '' then drop_texts(prefix, id, {part = part}, old, {}) end
    if redis.call('HGET', prefix .. 'e:' .. id, 'set') == set then n, part = remove_entry(prefix, id) end
    tell(prefix, nil, 'op', 'del', 'id', id, 'part', part, 'src', '')
    redis.call('HDEL', prefix .. 'seed:' .. set, id)
    if redis.call('HLEN', prefix .. 'seed:' .. set) <= STRAY_MAX then -- what is no id is named by nobody: it must not keep the set
      for _, left in ipairs(redis.call('HKEYS', prefix .. 'seed:' .. set)) do
        if not is_id(left) then redis.call('HDEL', prefix .. 'seed:' .. set, left) end
      end
    end
    if redis.call('EXISTS', prefix .. 'seed:' .. set) == 0 then redis.call('ZREM', prefix .. 'seeds', set) end
    return 1
  end

  local function deja_seeds(keys, args)
    local prefix = prefix_of(keys[1])
    if #keys ~= 1 or not prefix or #args > 1 then return bad('deja_seeds needs 1 key ({ns}) and at most one set') end
    if args[1] then return redis.call('HKEYS', prefix .. 'seed:' .. args[1]) end
    local out = {}
    for _, set in ipairs(redis.call('ZRANGE', prefix .. 'seeds', 0, -1)) do
      out[#out + 1] = set .. '  ' .. redis.call('HLEN', prefix .. 'seed:' .. set)
    end
    return out
  end

  redis.register_function('deja_seed', deja_seed)
  redis.register_function('deja_unseed', deja_unseed)
  redis.register_function({function_name = 'deja_seeds', callback = deja_seeds, flags = {'no-writes'}})
end
