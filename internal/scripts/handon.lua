-- Is the end of release.lua, for releases that may find somebody in the queue, or no key of theirs.

if mine or member and v == '~' .. member then
	if ARGV[4] then
		call('ZADD', queue, ARGV[4], member)
		call('PEXPIRE', queue, ARGV[5])
	end
	local first
	while queue do
		local to = pcall('ZPOPMIN', queue)[1]
		if not to then break end
		if to ~= member or ARGV[4] then
			first = first or to
			if to == member or hears(to) then
				first = to
				break
			end
		end
	end
	if first then
		call('SET', key, '~' .. first, 'PX', ARGV[2])
		return mine and 2 or 0
	end
	call('DEL', key)
	return mine and 1 or 0
end
if member and not ARGV[4] then pcall('ZREM', queue, member) end
if not v then return 0 end
local ttl = call('PTTL', key)
if ttl < 0 then return -1 end
return -2 - ttl
