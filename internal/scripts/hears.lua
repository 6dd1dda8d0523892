-- Is sent in front of the scripts that hand a key on. hears tells a member that it is its turn, or
-- another text, and reports whether anybody listens there. A server of a cluster counts its own
-- subscribers only: it reports that everybody listens.

local call, pcall = redis.call, redis.pcall
local function hears(to, text)
	local n = to and pcall('PUBLISH', string.sub(to, 1, 39), text or string.sub(to, 40))
	if n ~= 0 then return type(n) == 'number' end
	local cluster = pcall('INFO', 'cluster')
	return type(cluster) == 'string' and string.find(cluster, 'cluster_enabled:1', 1, true)
end
