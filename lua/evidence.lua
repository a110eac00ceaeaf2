-- evidence - pairs of which it became known whether the answer was right: what mode "bound" learns from (cache/bound.h).
--   evidence  stream  the last 20000 pieces; a gateway that starts reads them all, in order
--
-- deja_evidence KEYS {ns}  ARGV source by [field value]...
--     Fields: entry ns right weight cosine floor rival agree verifier zh, and once: a name; the second piece of that name within an hour is
--     not taken. Kept with the entry too (right, wrong), if it is there. Reply: the piece's id in the stream, or 0.

local EVIDENCE_MAX = 20000

local function deja_evidence(keys, args)
  local prefix = prefix_of(keys[1])
  if #keys ~= 1 or not prefix then return bad('deja_evidence needs 1 key that names the key space, as in {deja}') end
  if #args < 4 or #args % 2 ~= 0 then return bad('deja_evidence needs: source by [field value]...') end
  local f, fields = {}, {}
  for i = 3, #args do
    fields[#fields + 1] = args[i]
    if i % 2 == 1 then f[args[i]] = args[i + 1] end
  end
  if not is_id(f.entry) then return bad('deja_evidence: entry must be the 32 hex digits of x-deja-entry') end
  if f.right ~= '0' and f.right ~= '1' then return bad('deja_evidence: right must be 1 or 0') end
  local weight = tonumber(f.weight)
  if not weight or weight < 0 or weight > 1 then return bad('deja_evidence: weight must be from 0 to 1') end
  if f.once and not redis.call('SET', prefix .. 'once:' .. f.once, '1', 'NX', 'EX', 3600) then return 0 end
  local id = redis.call('XADD', prefix .. 'evidence', 'MAXLEN', '~', EVIDENCE_MAX, '*', 'by', args[2], unpack(fields))
  local key = prefix .. 'e:' .. f.entry
  if redis.call('TYPE', key).ok == 'hash' then
    redis.call('HINCRBYFLOAT', key, f.right == '1' and 'right' or 'wrong', weight)
  end
  tell(prefix, nil, 'op', 'evidence', 'eid', id, 'src', args[1], unpack(fields))
  return id
end

redis.register_function('deja_evidence', deja_evidence)
