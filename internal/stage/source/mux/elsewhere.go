package mux

import (
	"strconv"
	"strings"

	"github.com/stoker-data/stoker/internal/stage/source"
)

// Schemes that other tools take and stoker does not, and what to write instead.

// vendors speak S3 at addresses of their own.
var vendors = map[string]string{
	"r2":     "https://ACCOUNT.r2.cloudflarestorage.com",
	"oss":    "https://s3.oss-REGION.aliyuncs.com",
	"cos":    "https://cos.REGION.myqcloud.com",
	"cosn":   "https://cos.REGION.myqcloud.com",
	"obs":    "https://obs.REGION.myhuaweicloud.com",
	"tos":    "https://tos-s3-REGION.volces.com",
	"b2":     "https://s3.REGION.backblazeb2.com",
	"spaces": "https://REGION.digitaloceanspaces.com",
	"wasabi": "https://s3.REGION.wasabisys.com",
	"oci":    "https://NAMESPACE.compat.objectstorage.REGION.oraclecloud.com",
	"minio":  "http://HOST:9000",
	"ceph":   "http://HOST:PORT",
	"swift":  "https://HOST",
}

// insteadOf says what to write instead of a name whose scheme no source has; "": nothing
// is known of it. A name with secrets is not repeated.
func insteadOf(name, scheme string) string {
	_, rest := source.CutScheme(name)
	write := func(other string) string {
		if source.Shown(name) != name {
			return "write the same with " + other[:strings.Index(other, "://")+3]
		}
		return "write " + strconv.Quote(other)
	}
	if endpoint, ok := vendors[scheme]; ok {
		return write("s3://"+rest) + ", and set endpoint_url in dataset.storage: " + endpoint
	}
	switch scheme {
	case "s3a", "s3n", "s3s":
		return write("s3://" + rest)
	case "wasb", "wasbs":
		return write("abfss://" + strings.Replace(rest, ".blob.core.", ".dfs.core.", 1))
	case "adl":
		return "Azure has closed Data Lake Storage Gen1: write abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH, the place that the data was moved to"
	case "dbfs":
		return "give the path under which Databricks mounts it: " + strconv.Quote("/dbfs/"+strings.TrimLeft(rest, "/"))
	case "hdfs", "viewfs", "webhdfs", "swebhdfs", "har", "alluxio", "juicefs", "jfs":
		return "mount the file system and give the path there, or copy the data (hdfs dfs -get)"
	case "smb", "cifs", "nfs", "sftp", "ssh", "scp", "rsync", "ftp", "ftps", "afp":
		return "mount the folder and give its path, or copy the data"
	case "dav", "webdav":
		return write("http://" + rest)
	case "davs", "webdavs":
		return write("https://" + rest)
	case "github":
		if org, more, ok := strings.Cut(rest, ":"); ok {
			if repo, file, ok := strings.Cut(more, "/"); ok {
				repo, ref, _ := strings.Cut(repo, "@")
				if ref == "" {
					ref = "HEAD"
				}
				return write("https://raw.githubusercontent.com/" + org + "/" + repo + "/" + ref + "/" + file)
			}
		}
		return "write https://raw.githubusercontent.com/OWNER/REPOSITORY/REF/PATH, or clone the repository and give its path"
	case "gdrive", "dropbox", "onedrive", "box":
		return "copy the data to a disk or an object store (rclone copy), and give its path"
	}
	return ""
}
